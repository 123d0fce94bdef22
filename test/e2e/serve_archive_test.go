package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// archivingConfig is the configuration of services that archive the log of one cluster. Backups are due once a day.
func archivingConfig(t *testing.T, j job, c *servers.Cluster) string {
	t.Helper()
	text := fmt.Sprintf(`
lease: 2s
repositories:
  main: {url: "file://%s"}
clusters:
  prod:
    etcd: {endpoints: [%s]}
    repositories: [main]
    recipients: [%s]
    schedule: {cron: "@daily"}
    archive: {flush: 200ms}
`, j.repo, strings.Join(c.Endpoints(), ", "), j.to)
	path := filepath.Join(t.TempDir(), "dr.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// archives waits until one of the services archives as is wanted, and returns its number.
func archives(t *testing.T, what string, wanted func(archive.Status) bool, services ...*serving) int {
	t.Helper()
	var last []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		last = nil
		for i, s := range services {
			status, err := s.status()
			if err == nil && len(status.Clusters) == 1 && status.Clusters[0].Archive != nil && wanted(*status.Clusters[0].Archive) {
				return i
			}
			last = append(last, fmt.Sprintf("%+v, %v", status, err))
		}
	}
	t.Fatalf("waited for: %s; they said last:\n%s", what, strings.Join(last, "\n"))
	return 0
}

func works(s archive.Status) bool { return s.State == archive.Working }

// allStored waits until one of the services says that all which was acknowledged before now is stored.
func allStored(t *testing.T, services ...*serving) {
	t.Helper()
	now := time.Now()
	archives(t, "all is stored", func(s archive.Status) bool { return s.ConfirmedAt.After(now) }, services...)
}

// Two services archive one log. The one that works is killed, again and again, while writing goes on: the other takes over,
// and it is one log, without a gap, out of which any revision comes back.
func TestServeArchives(t *testing.T) {
	t.Parallel()
	skipShort(t)
	source := servers.Start(t, servers.Options{Members: 3})
	client := source.Client(t)
	j := newJob(t)
	config := archivingConfig(t, j, source)
	services := []*serving{serve(t, config), serve(t, config)}
	archives(t, "one works", works, services...)
	put(t, client, "first", "of the log")
	allStored(t, services...)
	j.untilWindows(t, 1)

	w := write(t, source)
	w.more(t, 100)
	middle := live(t, client, 0)
	for range 3 {
		working := archives(t, "one works", works, services...)
		other := services[1-working]
		services[working].end(syscall.SIGKILL)
		archives(t, "it takes over", works, other)
		w.more(t, 100)
		services[working] = serve(t, config)
		services[working].until(t, "it stands by", func(s document.ServeStatus) bool {
			return len(s.Clusters) == 1 && s.Clusters[0].Archive != nil && s.Clusters[0].Archive.State == archive.Standby
		})
	}
	w.end()
	newest := live(t, client, 0)
	allStored(t, services...)
	j.gives(t, newest, "--to-revision", fmt.Sprint(newest.Revision))
	j.gives(t, middle, "--to-revision", fmt.Sprint(middle.Revision))
	w.comesBack(t, j, client, newest.Revision)
	for _, s := range services {
		if code := s.end(syscall.SIGTERM); code != 0 {
			t.Errorf("stopped, it ended with %d", code)
		}
	}
	j.oneLog(t)
}
