package jobs_test

import (
	"errors"
	"testing"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/jobs"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestDrillOfPlainBackups checks that a drill with a key refuses an unencrypted backup, as a restore does, unless the settings
// allow it.
func TestDrillOfPlainBackups(t *testing.T) {
	dir := t.TempDir()
	c := stored.OpenCluster(t, stored.OpenFile(t, dir), "prod")
	stored.Create(t, c, stored.IDAt(0))
	keys, _ := stored.Pair(t)
	for _, test := range []struct {
		drill   spec.Drill
		refused bool
	}{
		{spec.Drill{Keys: keys}, true},
		{spec.Drill{Keys: keys, AllowPlain: true}, false},
		{spec.Drill{Keys: seal.Keys{}}, false},
	} {
		of := spec.Spec{Cluster: "prod", Repositories: []spec.Repository{{Name: "main", URL: "file://" + dir}}, Drill: test.drill}
		of.Drill.Repository, of.Drill.Dir = "main", t.TempDir()
		proofs, err := jobs.NewService(jobs.Identity{Host: "h"}, nil, nil).Drill(
			t.Context(), scheduler.DrillRequest{Spec: of, In: backup.Store{Repository: "main", Cluster: c}}, func(storage.Event) {},
		)
		if errors.Is(err, fault.Refused) != test.refused || (len(proofs) == 0) != test.refused {
			t.Errorf("%+v: proofs %+v, %v", test.drill, proofs, err)
		}
	}
}
