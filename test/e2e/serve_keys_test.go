package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// TestServeNamesKeys runs a service without recipients on a repository with an encrypted backup. The remedy is in terms of dr.yaml:
// the service has no flags for it.
func TestServeNamesKeys(t *testing.T) {
	withServers(t)
	j := newJob(t)
	source := servers.Start(t, servers.Options{})
	j.backUp(t, source)
	s := command.Serve(t, nil, command.Config(t, fmt.Sprintf(`
repositories: {main: {url: "file://%s"}}
clusters:
  prod: {etcd: {endpoints: [%s]}, repositories: [main], schedule: {cron: "@every 1s"}}
`, j.repo, source.Endpoints()[0])))
	s.UntilLogged(t, "set recipients, or backup.plain to store")
	s.Until(t, "the status names the keys", func(d document.ServeStatus) bool {
		return strings.Contains(d.Clusters[0].Problem, "set recipients, or backup.plain to store")
	})
}
