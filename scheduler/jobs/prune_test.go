package jobs_test

import (
	"context"
	"testing"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/jobs"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// A pruning keeps the catalog that it decides on until it ends.
func TestPruneHoldsTheMemoryOfItsCatalog(t *testing.T) {
	stored.WantHeld(t, func(ctx context.Context) error {
		in := stored.Hanging{Bucket: stored.Large{Bucket: mem.New()}, Prefix: "c/log/"}
		_, err := jobs.Identity{}.Prune(ctx, spec.Spec{Cluster: "c"}, backup.Store{Cluster: stored.OpenCluster(t, in, "c")}, nil)
		return err
	})
}
