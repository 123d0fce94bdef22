package faults

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// stopTime is how long systemd or Kubernetes waits before it kills a service, plus half as much for a busy machine.
const stopTime = 45 * time.Second

// TestStoppedInMidBackup stops a service while a backup streams from a member that hangs. It must end by itself before
// systemd or Kubernetes would kill it, also if the store hangs too. Nothing of the backup is listed.
func TestStoppedInMidBackup(t *testing.T) {
	if testing.Short() {
		return
	}
	l := newLarge(t)
	store := objectstores.S3(t)
	bucket, proxy := store.Bucket(t), objectstores.NewProxy(t, store.Endpoint)
	objectstores.Setenv(t, store.Env())
	here := repo(filepath.Join(t.TempDir(), "repo"))
	direct := store.URL(bucket, "etcd")

	var stopped []stopping
	for name, begin := range map[string]func(endpoint string) []string{
		"serve": func(endpoint string) []string { return serveArgs(t, "file://"+string(here), endpoint) },
		"archive": func(endpoint string) []string {
			return []string{"archive", "--repo", "file://" + string(here), "--cluster", "watched", "--recipient", l.key.recipient,
				"--source", "watch", "--endpoints", endpoint, "--listen", ""}
		},
		"serve without a store": func(endpoint string) []string {
			return serveArgs(t, store.Through(proxy).URL(bucket, "etcd"), endpoint)
		},
	} {
		g := newGate(t, l.server.Members[0].ClientURL, largeSize/2)
		p := start(t, begin(g.url)...)
		stopped = append(stopped, stopping{name, p, g})
	}
	for _, s := range stopped {
		<-s.gate.reached
	}
	proxy.BlackHole()
	began := time.Now()
	for _, s := range stopped {
		s.process.Signal(t, syscall.SIGTERM)
	}
	for _, s := range stopped {
		o := s.process.Wait(t)
		o.NoTrace(t)
		if time.Since(began) > stopTime {
			t.Errorf("%s has ended only after %s\n%s", s.name, time.Since(began), o)
		}
		if o.Code != 0 && !(o.Code == 130 && strings.Contains(s.name, "without")) {
			t.Errorf("%s ended with %d\n%s", s.name, o.Code, o)
		}
	}
	for _, url := range []string{"file://" + string(here), direct} {
		o := run(t, "list", "--repo", url)
		if strings.Contains(o.Stdout, `"id"`) {
			t.Errorf("in %s there is a backup\n%s", url, o)
		}
	}
	left := here.leftovers(t)
	if len(left) > 0 {
		t.Errorf("%q were left", left)
	}
}

// stopping is a service in the middle of a backup.
type stopping struct {
	name    string
	process *command.Process
	gate    *gate
}

// serveArgs returns the arguments of a dr serve whose cluster has never been backed up.
func serveArgs(t *testing.T, url, endpoint string) []string {
	t.Helper()
	config := command.Config(t, fmt.Sprintf(`
repositories:
  main: {url: %q}
clusters:
  %s:
    etcd: {endpoints: [%q]}
    repositories: [main]
    schedule: {cron: "@daily"}
`, url, clusterName, endpoint))
	return []string{"serve", "--config", config, "--listen", ""}
}
