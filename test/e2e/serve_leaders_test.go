package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// TestServeWhileLeadersDie has a backup due every five seconds for a minute, and kills the leader every ten, at any
// moment: each backup ends as a success, which is listed, or as a failure, which is not. Listed backups can be
// restored.
func TestServeWhileLeadersDie(t *testing.T) {
	withServers(t)
	source := servers.Start(t, servers.Options{Members: 3})
	servers.Fill(t, source.Client(t), 1, servers.FillOptions{Keys: 2000, ValueSize: 4000})
	store := objectstores.S3(t)
	j := newJob(t)
	url := store.URL(store.Bucket(t), "")
	j.env = append(store.Env(), "DR_REPO="+url, "DR_CLUSTER=prod", "DR_RECIPIENT="+j.to, "DR_IDENTITY="+j.key)
	s := command.Serve(t, store.Env(), everyFiveSeconds(t, source, url, j.to))
	for range 4 {
		writeFor(t, source, 9*time.Second)
		s.Until(t, "a backup is being taken", func(d document.ServeStatus) bool {
			return len(d.Clusters) == 1 && d.Clusters[0].State == document.StateRunning
		})
		leader := source.Leader(t)
		source.Kill(t, leader)
		source.Restart(t, leader)
	}
	s.Stop(t)

	list, out := j.list(t)
	if out.Code != 0 || len(list.Damaged) > 0 {
		t.Errorf("dr list ends with %d: %+v", out.Code, list.Damaged)
	}
	var listed []catalog.ID
	slots := map[string]bool{}
	for _, b := range slices.Backward(list.Backups) {
		slot := b.Labels["schedule"]
		if slots[slot] {
			t.Errorf("two backups are of %s", slot)
		} else {
			slots[slot] = true
		}
		listed = append(listed, b.ID)
	}
	stored, failed := loggedBackups(t, s)
	slices.Sort(stored)
	if !slices.Equal(stored, listed) || len(stored) < 3 {
		t.Errorf("said to be stored %q, listed %q", stored, listed)
	}
	t.Logf("%d stored, %d failed", len(stored), failed)
	j.eachRestores(t, source, list)
}

// writeFor writes to the cluster now and then, and ignores errors.
func writeFor(t *testing.T, c *servers.Cluster, d time.Duration) {
	t.Helper()
	client := c.Client(t)
	for begin := time.Now(); time.Since(begin) < d; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, _ = client.Put(ctx, "now", time.Now().String())
		cancel()
	}
}

func everyFiveSeconds(t *testing.T, c *servers.Cluster, url, recipient string) string {
	t.Helper()
	return command.Config(t, fmt.Sprintf(`
repositories:
  main: {url: %q}
clusters:
  prod:
    etcd: {endpoints: [%s]}
    repositories: [main]
    recipients: [%s]
    schedule: {cron: "@every 5s"}
`, url, strings.Join(c.Endpoints(), ", "), recipient))
}

// loggedBackups returns the backups that the service has logged as stored, and the number of failed ones. Each backup
// has to end before the next one begins.
func loggedBackups(t *testing.T, s *command.Service) (stored []catalog.ID, failed int) {
	t.Helper()
	running := false
	for line := range strings.Lines(s.Log()) {
		var l struct{ Stage, Msg string }
		err := json.Unmarshal([]byte(line), &l)
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		switch message := l.Msg; {
		case l.Stage != "schedule":
		case strings.HasPrefix(message, "taking a backup: "):
			if running {
				t.Errorf("begun before the one before had ended: %s", message)
			}
			running = true
		case strings.HasPrefix(message, "backup "):
			stored = append(stored, catalog.ID(strings.Fields(message)[1]))
			running = false
		case strings.HasPrefix(message, "no backup: "):
			failed++
			running = false
		}
	}
	if running {
		t.Error("the last one was begun, and nothing says how it ended")
	}
	return stored, failed
}

// eachRestores opens all listed backups, and compares the key spaces of the first, the middle and the last one with the
// cluster's.
func (j job) eachRestores(t *testing.T, source *servers.Cluster, list document.List) {
	t.Helper()
	command.Must(t, j.env, "verify", "--all", "--level", "opened")
	n := len(list.Backups)
	for _, i := range []int{0, n / 2, n - 1} {
		got, _ := j.image(t, string(list.Backups[i].ID))
		want := live(t, source.Client(t), got.Revision)
		found := want.Differences(got)
		if len(found) > 0 {
			t.Errorf("%s: live first, restored second:\n%s", list.Backups[i].ID, strings.Join(found, "\n"))
		}
	}
}
