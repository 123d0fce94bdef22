package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// TestServeWithoutTheRepositorysFileSystem starts the service with the shipped URLs of a directory, which is empty as a mount point
// without its file system is. The service begins no new history there, and continues once the directory contains a repository.
func TestServeWithoutTheRepositorysFileSystem(t *testing.T) {
	withServers(t)
	endpoint := servers.Start(t, servers.Options{}).Endpoints()[0]
	for _, shipped := range []string{"../../deploy/small.yaml", "../../deploy/dr.yaml"} {
		text, err := os.ReadFile(shipped)
		if err != nil {
			t.Fatal(err)
		}
		url := regexp.MustCompile(`url: "?(file:///var/backups/etcd[^\s}"]*)`).FindStringSubmatch(string(text))[1]
		dir := t.TempDir()
		s := command.Serve(t, nil, command.Config(t, fmt.Sprintf(`
lease: 1s
repositories:
  main: {url: %q}
clusters:
  prod: {etcd: {endpoints: [%s]}, repositories: [main], schedule: {cron: "@every 2s"}, observe: 10s}
`, strings.Replace(url, "/var/backups/etcd", dir, 1), endpoint)))
		s.Until(t, shipped+": RepositoryAway", func(d document.ServeStatus) bool {
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) > 0 {
				t.Fatalf("%s: the empty directory contains %v, %v", shipped, entries, err)
			}
			return len(d.Clusters) == 1 && isAway(d.Clusters[0])
		})
		command.Must(t, nil, "backup", "--plain", "--repo", "file://"+dir, "--cluster", "prod", "--endpoints", endpoint)
		s.Until(t, shipped+": RepositoryAway ends", func(d document.ServeStatus) bool {
			return !isAway(d.Clusters[0]) && d.Clusters[0].Counted(document.JobBackup, document.Succeeded) > 0
		})
		s.Stop(t)
	}
}

// isAway reports whether c has the condition RepositoryAway, with the remedy to mount the file system.
func isAway(c document.ServedCluster) bool {
	return slices.ContainsFunc(c.Conditions, func(one condition.Condition) bool {
		return one.Name == condition.RepositoryAway && one.Severity == condition.Critical && strings.Contains(one.Message, "mount its file system")
	})
}
