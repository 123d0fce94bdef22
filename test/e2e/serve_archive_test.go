package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// archivingConfig returns the configuration of services that archive the log of one cluster. Backups are due once a
// year.
func archivingConfig(t *testing.T, j job, c *servers.Cluster) string {
	t.Helper()
	return command.Config(t, fmt.Sprintf(`
lease: 2s
repositories:
  main: {url: "file://%s"}
clusters:
  prod:
    etcd: {endpoints: [%s]}
    repositories: [main]
    recipients: [%s]
    schedule: {cron: "@yearly"}
    archive: {flush: 200ms}
`, j.repo, strings.Join(c.Endpoints(), ", "), j.to))
}

// TestServeArchives runs two services that archive one log. The working one is killed, again and again, during writes:
// the other takes over, and the result is one log, without a gap, from which any revision can be restored.
func TestServeArchives(t *testing.T) {
	withServers(t)
	source := servers.Start(t, servers.Options{Members: 3})
	client := source.Client(t)
	j := newWatchingJob(t)
	config := archivingConfig(t, j, source)
	services := []*agent.Agent{agent.Serve(t, nil, config), agent.Serve(t, nil, config)}
	j.firstWindow(t, client, services...)
	w := write(t, source)
	w.more(t, 100)
	middle := live(t, client, 0)
	for range 3 {
		working := agent.Working(t, services...)
		services[working].Kill(t)
		agent.Working(t, services[1-working])
		w.more(t, 100)
		services[working] = agent.Serve(t, nil, config)
		services[working].Until(t, "it stands by", func(s document.Agent) bool { return s.State == document.AgentStandby })
	}
	w.nothingLost(t, j, client, services...)
	newest := live(t, client, 0)
	j.wantRestored(t, newest, "--to-revision", fmt.Sprint(newest.Revision))
	j.wantRestored(t, middle, "--to-revision", fmt.Sprint(middle.Revision))
	for _, s := range services {
		s.Stop(t)
	}
	j.oneLog(t)
}
