package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/config"
)

// A fault in a shared part refuses each cluster that uses the part, at the fault's line.
func TestFaultsInAliases(t *testing.T) {
	prod := "{etcd: {endpoints: [http://127.0.0.1:2379]}, repositories: [main], schedule: {cron: '@daily'}"
	head := "repositories:\n  main: {url: 'file:///srv/main'}\nclusters:\n  good: " + prod + "}\n"
	for _, test := range []struct{ name, clusters, refused, says string }{
		{"alias", "  a: &a " + prod + ", observe: x}\n  b: *a\n", "a b", "dr.yaml:5: use a form like 90s"},
		{"merge", "  a: &a " + prod + ", observ: 1m}\n  b: {<<: *a}\n", "a b", `dr.yaml:5: unknown key "observ"`},
		{"merge of a list", "  a: &a " + prod + ", labels: [x]}\n  b: {<<: [*a]}\n", "a b", "dr.yaml:5: expected a mapping, got a list"},
		{"list", "  b: [hunter2]\n", "b", "dr.yaml:5: expected a mapping, got a list"},
		{"deep key twice", "  b: {drill: {nice: 1, nice: 1}}\n", "b", `dr.yaml:5: mapping key "nice" already defined at line 5`},
		{"key that is a list", "  b: {? [x] : y}\n", "b", "dr.yaml:5: expected a string, got a list"},
		{"key that is nothing", "  b: {~: y}\n", "b", "dr.yaml:5: a key is null: quote it"},
		{"label that is nothing", "  b: {labels: {null: y}}\n", "b", "dr.yaml:5: a key is null: quote it"},
		{"item that is nothing", "  b: {repositories: [main, ~]}\n", "b", "dr.yaml:5: an item of a list is null: remove it, or quote it"},
		{"mapping tagged as nothing", "  b: !!null {observ: hunter2, suspend: hunter2}\n", "b", "dr.yaml:5: a mapping or list cannot have the tag !!null"},
		{"list tagged as nothing", "  b: {recipients: !!null [[hunter2]]}\n", "b", "dr.yaml:5: a mapping or list cannot have the tag !!null"},
		{"string tagged as nothing", "  b: {suspend: !!null hunter2}\n", "b", "dr.yaml:5: expected true or false"},
		{"number that is none", "  b: {suspend: !!int hunter2}\n", "b", "dr.yaml:5: expected true or false"},
		{"key tagged as a merge", "  b: {!!merge etcd: {suspend: true}}\n", "b", `dr.yaml:5: unknown key "suspend"`},
		{"missed by the checker", "  a: {observe: x}\n  b: {labels: {!!binary aGk=: hunter2, aGk=: hunter2}}\n", "a b", `line 6: mapping key "aGk="`},
		{"unknown tag", "  b: {nice: !x hunter2, suspend: !x hunter2}\n", "b", "dr.yaml:5: expected true or false, got a value of type !x"},
	} {
		c, err := load(t, head+test.clusters, nothing)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var refused []string
		for _, r := range c.Refused {
			refused = append(refused, r.Cluster)
		}
		if refused == nil {
			t.Fatalf("%s: refused nothing", test.name)
		}
		text := c.RefusedErr().Error()
		if strings.Join(refused, " ") != test.refused || !strings.Contains(text, test.says) || strings.Contains(text, "\n") || strings.Contains(text, "hunter2") {
			t.Errorf("%s: refused %s: %s", test.name, refused, text)
		}
	}
}

// A fault that can affect other clusters than the one that contains it refuses the whole file, also next to a fault of one cluster.
func TestFaultsOfTheFile(t *testing.T) {
	prod := "{etcd: {endpoints: [http://127.0.0.1:2379]}, repositories: [main], schedule: {cron: '@daily'}"
	text := "repositories:\n  main: {url: 'file:///srv/main'}\nclusters:\n  good: " + prod + "}\n  a: {observe: x}\n"
	for _, test := range []struct{ name, text, says string }{
		{"key of a cluster twice", text + "  b: {suspend: true, suspend: true}\n", `dr.yaml:6: mapping key "suspend" already defined at line 6`},
		{"cluster that is nothing", text + "  null: " + prod + "}\n", "dr.yaml:6: a key is null: quote it"},
		{"name that is nothing", text + "templates: {t: {names: [~], cluster: " + prod + "}}}\n", "dr.yaml:6: an item of a list is null: remove it, or quote it"},
		{"file tagged as nothing", "!!null\n" + text, "a mapping or list cannot have the tag !!null"},
		{"heartbeat tagged as nothing", text + "heartbeat: !!null {url: hunter2}\n", "dr.yaml:6: a mapping or list cannot have the tag !!null"},
		{"key that is an alias", "defaults: {labels: {x: &clusters lease}}\n*clusters : 1h\n" + text, "lease must be from"},
		{"missed by the checker", text + "defaults: {labels: {!!binary aGk=: hunter2, aGk=: hunter2}}\n", `dr.yaml:6: mapping key "aGk=" already defined at line 6`},
		{"clusters missed by the checker", text + "  !!binary aGk=: {}\n  aGk=: {}\n", `dr.yaml:7: mapping key "aGk=" already defined at line 6`},
	} {
		c, err := load(t, test.text, nothing)
		if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, refused %v, want %q", test.name, err, c.RefusedErr(), test.says)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// If the line with a cluster's name is lost, its keys belong to the cluster before it. Both keep their settings.
func TestLostNameEndsNoCluster(t *testing.T) {
	dir := t.TempDir()
	both := like("a") + strings.TrimPrefix(like("b"), "clusters:\n")
	first, err := fleet(t, dir, map[string]string{"dr.yaml": fleetMain, "clusters.d/ab.yaml": both})
	if err != nil || first.RefusedErr() != nil {
		t.Fatal(err, first.RefusedErr())
	}
	c, err := fleet(t, dir, map[string]string{"clusters.d/ab.yaml": strings.Replace(both, "  b:\n", "", 1)})
	if err != nil {
		t.Fatal(err)
	}
	kept := c.Keeping(first)
	got := strings.Join(names(kept), " ")
	if got != "a ams b fra prod" || kept.Faulty["a"] == "" || kept.Faulty["b"] == "" {
		t.Errorf("clusters %s, faulty %v", got, kept.Faulty)
	}
	main := fleetMain + strings.TrimPrefix(both, "clusters:\n")
	_, err = fleet(t, t.TempDir(), map[string]string{"dr.yaml": strings.Replace(main, "  b:\n", "", 1)})
	if !errors.Is(err, config.ErrConfig) {
		t.Errorf("the name of a cluster of dr.yaml is lost: %v", err)
	}
}

// Cycles and floods of aliases are errors, not endless work.
func TestAliasesAreBounded(t *testing.T) {
	var flood strings.Builder
	flood.WriteString("defaults:\n  labels: &a0 {k: v}\nclusters:\n")
	for _, level := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		before := string(rune(level[0] - 1))
		flood.WriteString("  c" + level + ": {labels: &a" + level + " {<<: [" + strings.Repeat("*a"+before+", ", 9) + "*a" + before + "]}}\n")
	}
	for text, says := range map[string]string{
		"clusters:\n  a: {<<: x}\n":                          ":2: expected a mapping, got a string",
		"clusters: {a: &a {<<: *a}}":                         "contains itself",
		"clusters: {a: {labels: &a {<<: [*a]}}}":             "contains itself",
		"clusters: {a: &a {labels: {x: y, <<: [*a, *a]}}}":   "expected a string",
		"defaults: &d {etcd: *d, drill: *d}\nclusters: {}\n": "unknown key",
		flood.String(): "excessive aliasing",
	} {
		_, err := load(t, text, nothing)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

// Recipients that a cluster merges replace the defaults' like its own.
func TestMergedRecipientsReplaceTheDefaults(t *testing.T) {
	text := "defaults: {recipientsFile: DIR/recipients.txt}\n" +
		strings.Replace(with("<<: {passphraseEnv: PASS}"), "[main]", "[main]\n    backup: {grace: 1h}", 1)
	c, err := load(t, text, func(string) string { return "p4ssphrase" })
	if err != nil {
		t.Fatal(err)
	}
	got := c.Specs[0].Backup
	if len(got.To.Seal().Recipients) != 1 || got.Grace != time.Hour {
		t.Errorf("sealed for %q, grace %s", got.To.Seal().Recipients, got.Grace)
	}
}
