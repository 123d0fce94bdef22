package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/stores"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// takenAgo stores a small backup that began the given time ago.
func takenAgo(t *testing.T, repo, cluster string, ago time.Duration) {
	t.Helper()
	bucket, err := stores.Create(t.Context(), repo, stores.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := repository.Open(bucket, cluster)
	if err != nil {
		t.Fatal(err)
	}
	started, sum := time.Now().Add(-ago), sha256.Sum256(nil)
	_, err = stored.CreateFrom(t.Context(), c, catalog.NewID(started, 7), seal.Recipients{}.Seal(), strings.NewReader("sealed"),
		func() (catalog.Manifest, error) {
			return catalog.Manifest{
				Started: started, Finished: started, Revision: 7, ClusterID: "cdf818194e3a8c32",
				Plain: catalog.Blob{Name: "snapshot.db", Size: 5, SHA256: hex.EncodeToString(sum[:])},
			}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
}

// configured writes a configuration with three clusters, of which one has no backup and one is late.
func configured(t *testing.T) (path, repo string) {
	t.Helper()
	dir := t.TempDir()
	repo = "file://" + filepath.Join(dir, "repo")
	takenAgo(t, repo, "fine", time.Minute)
	takenAgo(t, repo, "stale", 49*time.Hour)
	path = filepath.Join(dir, "dr.yaml")
	text := fmt.Sprintf(`
repositories:
  main: {url: %s}
  gone: {url: "file://%s/gone"}
defaults:
  etcd: {endpoints: [http://127.0.0.1:1]}
  repositories: [main]
  schedule: {cron: "@daily", zone: Europe/Berlin}
clusters:
  fine: {}
  stale: {}
  empty: {}
  lost: {repositories: [gone]}
`, repo, dir)
	err := os.WriteFile(path, []byte(text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return path, repo
}

func TestStatus(t *testing.T) {
	path, repo := configured(t)
	out := dr(t, nil, "status", "--config", path, "-o", "json")
	var got document.Status
	err := json.NewDecoder(strings.NewReader(out.stdout)).Decode(&got) // the error comes behind it
	if err != nil || out.code != 3 || got.Attention != 3 {
		t.Fatalf("exit code %d, %v: %s%s", out.code, err, out.stdout, out.stderr)
	}
	for i, want := range []string{"empty NoBackup", "stale BackupLate", "lost RepositoryAway", "fine NotEncrypted"} {
		one := got.Clusters[i]
		if one.Cluster+" "+string(one.Conditions[0].Name) != want {
			t.Errorf("%d is %+v, want %s", i, one, want)
		}
	}
	out = dr(t, nil, "status", "--config", path, "--cluster", "fine")
	if out.code != 0 || !strings.Contains(out.stdout, "fine") || strings.Contains(out.stdout, "stale") || strings.Contains(out.stdout, "CRITICAL") {
		t.Errorf("of one: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	out = dr(t, map[string]string{"DR_CONFIG": path}, "status")
	lines := strings.Split(out.stdout, "\n")
	if out.code != 3 || !strings.HasPrefix(lines[1], "empty ") ||
		!strings.HasPrefix(lines[2], "  critical NoBackup in main: there is no backup") || !strings.HasPrefix(lines[3], "    → dr backup --repo") ||
		!strings.Contains(out.stderr, "attention needed: 3 of 4 clusters") {
		t.Errorf("as a table: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	out = dr(t, map[string]string{"DR_CONFIG": path}, "status", "--repo", repo)
	if out.code != 0 || strings.Count(out.stdout, "  warning NotEncrypted: ") != 2 || strings.Contains(out.stdout, "NotLocked") {
		t.Errorf("without a schedule: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	out = dr(t, map[string]string{"DR_REPO": repo}, "status", "--check")
	if out.code != 2 || !strings.Contains(out.stderr, "--config") {
		t.Errorf("with nothing but DR_REPO to check: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	out = dr(t, nil, "status", "--config", path, "--cluster", "fine", "--check")
	if out.code != 3 || !strings.Contains(out.stdout, "critical MembersAway: ") {
		t.Errorf("with the cluster looked at: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	for _, line := range strings.Split(out.stdout, "\n") {
		if len([]rune(line)) > 120 && !strings.Contains(line, repo) {
			t.Errorf("too wide: %s", line)
		}
	}
	out = dr(t, nil, "status", "--config", path, "--cluster", "other")
	if out.code != 2 {
		t.Errorf("of an unknown one: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}

// TestStatusOfALogThatWasNeverStored checks that dr status reports a configured log that was never stored, without a running service.
func TestStatusOfALogThatWasNeverStored(t *testing.T) {
	path, _ := configured(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	logged := strings.NewReplacer("stale: {}", "stale: {archive: {flush: 2s}}", "fine: {}", "fine: {archive: {flush: 2s}}").Replace(string(text))
	err = os.WriteFile(path, []byte(logged), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	out := dr(t, nil, "status", "--config", path)
	n := strings.Count(out.stdout, "critical LogStopped in main: the log should be archived, but nothing")
	if n != 1 { // fine's is a minute old
		t.Errorf("%d of them:\n%s%s", n, out.stdout, out.stderr)
	}
}

// TestStatusOfAnUnreadableInclude checks that dr status reports an included file that cannot be parsed instead of a cluster that may be
// in it.
func TestStatusOfAnUnreadableInclude(t *testing.T) {
	path, _ := configured(t)
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append([]byte("include: [more.yaml]\n"), text...), 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(filepath.Dir(path), "more.yaml"), []byte("clusters: [\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := dr(t, nil, "status", "--config", path, "--cluster", "other")
	if out.code != 2 || !strings.Contains(out.stderr, "more.yaml") || strings.Contains(out.stderr, "correct the name") {
		t.Errorf("exit code %d: %s%s", out.code, out.stdout, out.stderr)
	}
}

// TestStatusOfAFaultyConfiguration checks that dr status shows all clusters despite an error in the configuration of one.
func TestStatusOfAFaultyConfiguration(t *testing.T) {
	path, _ := configured(t)
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(text), "  fine: {}", "  fine: {observ: 1m}", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := dr(t, nil, "status", "--config", path)
	for _, want := range []string{"fine     -           CRITICAL  -", "critical ConfigRefused: its configuration cannot be used", "unknown key \"observ\"", "stale    main"} {
		if out.code != 3 || !strings.Contains(out.stdout, want) {
			t.Errorf("exit code %d, without %q:\n%s%s", out.code, want, out.stdout, out.stderr)
		}
	}
	out = dr(t, nil, "status", "--config", path, "--cluster", "fine", "--check", "-o", "json")
	if out.code != 3 || strings.Count(out.stdout, `"name": `) != 1 || !strings.Contains(out.stdout, `"standings": []`) {
		t.Errorf("of that one: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}

func TestConfigCheck(t *testing.T) {
	path, _ := configured(t)
	out := dr(t, nil, "config", "check", "--config", path)
	for _, want := range []string{"fine: next backup at ", " 00:00:00 CE", "keeps everything", "NOT ENCRYPTED", "4 clusters, 4 backups at a time"} {
		if out.code != 0 || !strings.Contains(out.stdout, want) {
			t.Errorf("exit code %d, without %q:\n%s%s", out.code, want, out.stdout, out.stderr)
		}
	}
	var got document.ConfigCheck
	out = dr(t, nil, "config", "check", "--config", path, "-o", "json")
	err := json.Unmarshal([]byte(out.stdout), &got)
	if err != nil || len(got.Clusters) != 4 || len(got.Clusters[0].Next) != 3 {
		t.Errorf("%v: %s%s", err, out.stdout, out.stderr)
	}
}

// TestShortGraceIsWarnedOf checks that a grace that is shorter than a backup may take is accepted with a warning, and an equal one
// without.
func TestShortGraceIsWarnedOf(t *testing.T) {
	path, _ := configured(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer(
		"fine: {}", "fine: {backup: {grace: 21s, timeout: 21s}}", "stale: {}", "stale: {backup: {grace: 20s, timeout: 21s}}",
	).Replace(string(text))
	err = os.WriteFile(path, []byte(changed), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"config", "check"}, {"serve", "--listen", "nowhere"}} {
		out := dr(t, nil, append(args, "--config", path)...)
		want := "dr: WARNING: cluster stale: backup.grace 20s is shorter than backup.timeout 21s: "
		if !strings.Contains(out.stderr, want) || strings.Count(out.stderr, "backup.grace") != 1 {
			t.Errorf("%q: exit code %d, want one warning %q:\n%s%s", args, out.code, want, out.stdout, out.stderr)
		}
	}
}

// untilSaid calls stop when all of the words were written.
type untilSaid struct {
	said  strings.Builder
	words []string
	stop  func()
}

func (u *untilSaid) Write(p []byte) (int, error) {
	n, err := u.said.Write(p)
	missing := func(word string) bool { return !strings.Contains(u.said.String(), word) }
	if !slices.ContainsFunc(u.words, missing) {
		u.stop()
	}
	return n, err
}

// TestServeIsStopped checks that a stopped dr serve exits with 0, writes to stderr with the names of clusters, and nothing to stdout.
func TestServeIsStopped(t *testing.T) {
	path, _ := configured(t)
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	var stdout strings.Builder
	stderr := untilSaid{words: []string{`"cluster":"empty"`, "cluster fine has no recipients"}, stop: stop}
	code := run(ctx, []string{"serve", "--config", path, "--listen", "127.0.0.1:0"},
		world{strings.NewReader(""), &stdout, &stderr, func(string) string { return "" }})
	if code != 0 || stdout.Len() > 0 || ctx.Err() != context.Canceled {
		t.Errorf("exit code %d, %v, want %q\nstdout %s\nstderr %s", code, ctx.Err(), stderr.words, &stdout, &stderr.said)
	}
	out := dr(t, nil, "serve", "--config", path, "--listen", "nowhere")
	if out.code != 2 {
		t.Errorf("with a wrong address: exit code %d: %s", out.code, out.stderr)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	out = dr(t, nil, "serve", "--config", path, "--listen", taken.Addr().String())
	if out.code != 1 {
		t.Errorf("with an address that is in use: exit code %d: %s", out.code, out.stderr)
	}
}
