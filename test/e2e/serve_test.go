package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/process"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// slotsOf returns the labels of a cluster's backups with the times when they were due, oldest first.
func slotsOf(t *testing.T, repo, cluster string) (slots []string) {
	t.Helper()
	out := command.Run(t, nil, "list", "--repo", repo, "--cluster", cluster, "-o", "json")
	var list document.List
	if out.Code == 0 {
		out.Decode(t, &list)
	}
	for _, b := range slices.Backward(list.Backups) {
		slots = append(slots, b.Labels["schedule"])
	}
	return slots
}

// more waits until both clusters have n more backups, and no slot twice.
func more(t *testing.T, repo string, n int) {
	t.Helper()
	for _, cluster := range []string{"prod", "test"} {
		begin := len(slotsOf(t, repo, cluster))
		for start := time.Now(); ; time.Sleep(process.Pause(start)) {
			slots := slotsOf(t, repo, cluster)
			unique := slices.Compact(slices.Sorted(slices.Values(slots)))
			if len(unique) < len(slots) {
				t.Fatalf("%s has a slot twice: %q", cluster, slots)
			}
			if len(slots) >= begin+n {
				break
			}
			if time.Since(start) > patience {
				t.Fatalf("%s has the slots %q, %d more are wanted", cluster, slots, n)
			}
		}
	}
}

// TestServe runs two services with one configuration for two clusters. One is killed, again and again, and restarted;
// invalid files are refused. No slot is delayed for long, and none is used twice.
func TestServe(t *testing.T) {
	withServers(t)
	prod, test := servers.Start(t, servers.Options{Members: 3}), servers.Start(t, servers.Options{})
	repo := "file://" + filepath.Join(t.TempDir(), "repo")
	good := fmt.Sprintf(`
lease: 10s
repositories:
  main: {url: %s}
defaults:
  repositories: [main]
  schedule: {cron: "@every 2s"}
clusters:
  prod: {etcd: {endpoints: [%s]}}
  test: {etcd: {endpoints: [%s]}}
`, repo, strings.Join(prod.Endpoints(), ", "), strings.Join(test.Endpoints(), ", "))
	path := command.Config(t, good)
	said := command.Must(t, nil, "config", "check", "--config", path)
	if !strings.Contains(said, "prod: next backup at ") {
		t.Errorf("dr config check said\n%s", said)
	}

	a := command.Serve(t, nil, path)
	more(t, repo, 2)
	b := command.Serve(t, nil, path)
	for range 3 {
		more(t, repo, 1)
		a.Kill(t)
		more(t, repo, 2)
		a = command.Serve(t, nil, path)
	}

	command.Reconfigure(t, path, strings.Replace(good, "lease:", "leese:", 1))
	b.Until(t, "the bad file is refused", func(s document.ServeStatus) bool {
		return strings.Contains(s.Config.Refused, `dr.yaml:2: unknown key "leese"`) && len(s.Clusters) == 2
	})
	more(t, repo, 2)
	command.Reconfigure(t, path, strings.Replace(good, "  test: {", "  stage: {retention: {last: 2}, ", 1))
	b.Until(t, "the good file is in effect, and the retention too", func(s document.ServeStatus) bool {
		return s.Config.Refused == "" && len(s.Clusters) == 2 && s.Clusters[1].Cluster == "stage" && s.Clusters[1].Last != nil &&
			slotsOf(t, repo, "stage")[0] != "" && len(slotsOf(t, repo, "stage")) <= 3 && s.Clusters[1].Unpruned == "" && s.Clusters[1].Counted(document.JobBackup, document.Succeeded) > 3
	})
	before, err := b.Status()
	if err != nil {
		t.Fatal(err)
	}
	b.Signal(t, syscall.SIGHUP)
	b.Until(t, "it is read again", func(s document.ServeStatus) bool { return s.Config.Since.After(before.Config.Since) })

	b.Stop(t)
	if a.Running() { // the last one may have ended because of the bad file
		a.Stop(t)
	}
	said = command.Must(t, nil, "status", "--config", path)
	if !strings.Contains(said, "stage") || strings.Contains(said, "CRITICAL") {
		t.Errorf("dr status said\n%s", said)
	}
}
