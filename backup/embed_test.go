package backup_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

func put(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	_, err := client.Put(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
}

// at returns a configuration with short timeouts.
func at(endpoints ...string) cluster.Config {
	return cluster.Config{Endpoints: endpoints, DialTimeout: 20 * time.Second, CommandTimeout: 40 * time.Second}
}

// only returns c as the only place for a backup.
func only(c *repository.Cluster) []backup.Store { return []backup.Store{{Cluster: c}} }
