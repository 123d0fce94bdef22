package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/scheduler/config"
)

// fleet writes dr.yaml and files into a folder, and loads it.
func fleet(t *testing.T, dir string, files map[string]string) (config.Config, error) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err != nil {
			t.Fatal(err)
		}
		err = os.WriteFile(path, []byte(text), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	return config.Load(filepath.Join(dir, "dr.yaml"), os.Getenv)
}

func names(c config.Config) (all []string) {
	for _, s := range c.Specs {
		all = append(all, s.Cluster)
	}
	return all
}

const fleetMain = `repositories:
  main: {url: "file:///srv/main"}
include: [clusters.d/*.yaml]
defaults:
  repositories: [main]
  schedule: {cron: "@daily"}
templates:
  edge:
    names: [ams, fra]
    cluster:
      etcd: {endpoints: ["https://{{cluster}}.example:2379"]}
      labels: {site: "edge-{{cluster}}"}
clusters:
  prod:
    etcd: {endpoints: [http://127.0.0.1:2379]}
`

const included = `clusters:
  NAME:
    etcd: {endpoints: [http://127.0.0.1:2379]}
`

func like(name string) string { return strings.Replace(included, "NAME", name, 1) }

func TestIncludeAndTemplates(t *testing.T) {
	c, err := fleet(t, t.TempDir(), map[string]string{"dr.yaml": fleetMain, "clusters.d/a.yaml": like("a"), "clusters.d/b.yaml": like("b")})
	if err != nil || c.RefusedErr() != nil {
		t.Fatal(err, c.RefusedErr())
	}
	got := strings.Join(names(c), " ")
	if got != "a ams b fra prod" {
		t.Errorf("clusters %s", got)
	}
	ams := c.Specs[1]
	if ams.Etcd.Endpoints[0] != "https://ams.example:2379" || ams.Backup.Labels["site"] != "edge-ams" || ams.Schedule.None() {
		t.Errorf("ams is %+v", ams)
	}
}

// A fault of a key in the defaults is at its line, also for a cluster of a template or of an included file. A key that the cluster has
// itself is at its own line.
func TestFaultOfADefaultHasItsLine(t *testing.T) {
	bad := strings.Replace(fleetMain, "templates:", "  retention: {daily: -1}\ntemplates:", 1) + // line 7 of dr.yaml
		"    retention: {daily: 1}\n"
	own := strings.Replace(bad, "site: \"edge-{{cluster}}\"}", "x: y}\n      retention: {daily: -2}", 1)
	for name, test := range map[string]struct{ main, included, says string }{
		"template":                 {bad, like("a"), "dr.yaml:7: bad retention policy"},
		"included cluster":         {bad, like("a"), "dr.yaml:7: bad retention policy"},
		"template with its own":    {own, like("a"), "dr.yaml:14: bad retention policy"},
		"included, with its own":   {bad, like("a") + "    retention: {daily: -2}\n", "a.yaml:4: bad retention policy"},
		"included, without a line": {bad, like("a") + "    schedule: {cron: x}\n", "a.yaml:4: bad schedule"},
	} {
		c, err := fleet(t, t.TempDir(), map[string]string{"dr.yaml": test.main, "clusters.d/a.yaml": test.included})
		cluster := "ams"
		if strings.HasPrefix(name, "included") {
			cluster = "a"
		}
		at := slices.IndexFunc(c.Refused, func(r config.Refused) bool { return r.Cluster == cluster })
		if err != nil || at < 0 || !strings.Contains(c.Refused[at].Err.Error(), test.says) {
			t.Errorf("%s: %v, refused %+v, want %q", name, err, c.Refused, test.says)
		}
	}
}

// A typo refuses only the cluster that contains it, or the file that cannot be read; their earlier settings stay in effect.
func TestOneTypoRefusesOneCluster(t *testing.T) {
	dir := t.TempDir()
	good := map[string]string{"dr.yaml": fleetMain, "clusters.d/a.yaml": like("a"), "clusters.d/b.yaml": like("b")}
	first, err := fleet(t, dir, good)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ file, old, bad, refused, says string }{
		{"clusters.d/a.yaml", "endpoints", "endpoint", "a", "a.yaml:3: unknown key \"endpoint\""},
		{"clusters.d/a.yaml", "[http", "[htp", "a", "a.yaml:3: "},
		{"clusters.d/a.yaml", "etcd:", "schedule: {cron: 61}\n    etcd:", "a", "a.yaml:3: bad schedule"},
		{"clusters.d/a.yaml", "etcd:", "etcd: [", "a", "a.yaml"},
		{"clusters.d/a.yaml", "clusters:", "concurrency: 3\nclusters:", "a", "a.yaml:1: unknown key"},
		{"clusters.d/a.yaml", "a:", "prod:", "prod", "a.yaml:2: cluster prod is also declared in"},
		{"dr.yaml", "[http://127", "[htp://127", "prod", "dr.yaml:15: "},
		{"dr.yaml", "  prod:\n", "  prod:\n    observ: 1m\n", "prod", "dr.yaml:15: unknown key"},
	} {
		broken := map[string]string{test.file: strings.Replace(good[test.file], test.old, test.bad, 1)}
		c, err := fleet(t, dir, broken)
		if err != nil {
			t.Errorf("%s: %v", test.bad, err)
			continue
		}
		got := c.RefusedErr()
		if got == nil || !errors.Is(got, config.ErrConfig) || !strings.Contains(got.Error(), test.says) {
			t.Errorf("%s: refused %v, want %q", test.bad, got, test.says)
		}
		all := " " + strings.Join(names(c), " ") + " "
		if strings.Contains(all, " "+test.refused+" ") || len(c.Specs) < 3 {
			t.Errorf("%s: clusters %s", test.bad, all)
		}
		kept := c.Keeping(first)
		all = strings.Join(names(kept), " ")
		if !strings.Contains(" "+all+" ", " "+test.refused+" ") {
			t.Errorf("%s: with what was in effect: clusters %s", test.bad, all)
		}
		if !strings.Contains(kept.Faulty[test.refused], test.says) || len(kept.Faulty) != 1 {
			t.Errorf("%s: with what was in effect: faulty %v", test.bad, kept.Faulty)
		}
		_, err = fleet(t, dir, map[string]string{test.file: good[test.file]})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{"leese: 1m\n" + fleetMain, strings.Replace(fleetMain, "file:///srv", "ftp:///srv", 1), strings.Replace(fleetMain, "names:", "name:", 1)} {
		_, err := fleet(t, dir, map[string]string{"dr.yaml": bad})
		if !errors.Is(err, config.ErrConfig) {
			t.Errorf("a fault in what all have in common: %v", err)
		}
	}
}

// One repository pattern gives each cluster its own URL; two repositories never share one by accident.
func TestRepositoryOfEachCluster(t *testing.T) {
	main := strings.NewReplacer("file:///srv/main\"}", "s3://backups/{{cluster}}/etcd?region=eu-central-1\"}\n  other: {url: \"file:///srv/other\"}").Replace(fleetMain)
	c, err := fleet(t, t.TempDir(), map[string]string{"dr.yaml": main, "clusters.d/a.yaml": like("a")})
	if err != nil || c.RefusedErr() != nil {
		t.Fatal(err, c.RefusedErr())
	}
	for _, s := range c.Specs {
		want := "s3://backups/" + s.Cluster + "/etcd?region=eu-central-1"
		if s.Repositories[0].URL != want {
			t.Errorf("%s is at %s, want %s", s.Cluster, s.Repositories[0].URL, want)
		}
		got := s.Repositories[0].Pattern
		if got != "s3://backups/{{cluster}}/etcd?region=eu-central-1" {
			t.Errorf("pattern %s", got)
		}
	}
	for _, test := range []struct{ name, old, bad, refused, says string }{
		{"the place of another", "[http://127.0.0.1:2379]}", "[http://127.0.0.1:2379]}\n    repositories: [main, other]", "prod", "has the same URL for this cluster as repository other"},
		{"no bucket has such a name", "s3://backups/{{cluster}}", "s3://{{cluster}}", "", "no bucket has such a name"},
		{"an unknown word", "{{cluster}}/etcd", "{{name}}/etcd", "", "only {{cluster}} is known"},
		{"twice", "file:///srv/other", "s3://backups/{{cluster}}/etcd?region=eu-central-1", "", "is that of repository"},
	} {
		bad := strings.Replace(main, test.old, test.bad, 1)
		if test.name == "the place of another" {
			bad = strings.Replace(bad, "file:///srv/other", "s3://backups/prod/etcd?region=eu-central-1", 1)
		}
		if strings.Contains(test.bad, "s3://{{cluster}}") {
			bad = strings.Replace(bad, "ams", "a", 1)
		}
		c, err := fleet(t, t.TempDir(), map[string]string{"dr.yaml": bad})
		if test.refused == "" && err == nil {
			err = c.RefusedErr()
		}
		if test.refused != "" {
			err = errors.Join(err, c.RefusedErr())
		}
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", test.name, err, test.says)
		}
	}
}
