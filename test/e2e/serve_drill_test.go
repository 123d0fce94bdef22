package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// drilledBy waits until a drill of the only cluster has ended with that verdict and text.
func drilledBy(t *testing.T, s *command.Service, verdict document.Verdict, says string) (last document.Outcome) {
	t.Helper()
	s.Until(t, fmt.Sprintf("a drill that %s: %s", verdict, says), func(d document.ServeStatus) bool {
		if len(d.Clusters) == 0 { // it has just started
			return false
		}
		for _, o := range d.Clusters[0].Jobs {
			if o.Job == document.JobDrill && o.Verdict == verdict && strings.Contains(o.Message, says) {
				last = o
				return true
			}
		}
		return false
	})
	return last
}

// TestServeDrills checks the drills of a service: a drill that passes has been restored and booted, a missing expected
// value fails it, and without a key it does not pass. Meanwhile backups continue, until the cluster is suspended.
func TestServeDrills(t *testing.T) {
	withServers(t)
	source := servers.Start(t, servers.Options{})
	putKeys(t, source.Client(t), "key/", 20)
	dir := t.TempDir()
	key := filepath.Join(dir, "key.txt")
	recipient := strings.TrimSpace(command.Must(t, nil, "keygen", "--to", key))
	repo, scratch := "file://"+filepath.Join(dir, "repo"), t.TempDir()
	config := func(drill string) string {
		return fmt.Sprintf(`
lease: 2s
repositories: {main: {url: %s}}
clusters:
  prod:
    etcd: {endpoints: [%s]}
    repositories: [main]
    recipients: [%s]
    schedule: {cron: "@every 2s"}
    drill: {schedule: {cron: "@every 2s"}, scratchDir: %s, nice: 5, %s}
`, repo, source.Endpoints()[0], recipient[strings.Index(recipient, "age1"):], scratch, drill)
	}
	path := command.Config(t, config("assert: ['key=key/0', 'prefix=key/:20'], identityFiles: ["+key+"]"))
	said := command.Must(t, nil, "config", "check", "--config", path)
	if !strings.Contains(said, "next drill at ") ||
		!strings.Contains(said, "key=key/0, prefix=key/:20") {
		t.Errorf("dr config check said\n%s", said)
	}
	s := command.Serve(t, nil, path)
	o := drilledBy(t, s, document.Succeeded, "")
	if o.RTO <= 0 || o.Backup == "" || o.Repository != "main" {
		t.Errorf("it passed: %+v", o)
	}
	command.Reconfigure(t, path, config("assert: ['prefix=key/:21'], identityFiles: ["+key+"]"))
	drilledBy(t, s, document.Failed, "an assertion does not hold: prefix=key/:21, found 20")
	command.Reconfigure(t, path, config("assert: ['key=key/0']"))
	drilledBy(t, s, document.NotRun, "key")
	before, err := s.Status()
	if err != nil {
		t.Fatal(err)
	}
	s.Until(t, "backups go on", func(d document.ServeStatus) bool {
		return d.Clusters[0].Last.Started.After(before.Clusters[0].Last.Started)
	})
	command.Must(t, nil, "suspend", "--repo", repo, "--cluster", "prod", "--reason", "the disks are replaced")
	s.Until(t, "it is suspended", func(d document.ServeStatus) bool {
		c := d.Clusters[0]
		return c.State == document.StateSuspended && c.Suspension != nil && c.Suspension.Reason == "the disks are replaced"
	})
	left, err := os.ReadDir(scratch)
	if err != nil || len(left) > 0 {
		t.Errorf("drills left %v, %v", left, err)
	}
}
