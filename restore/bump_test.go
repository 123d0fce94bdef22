package restore_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

const million1000 = 1_000_000_000

// Only the replay shows that a key space belongs to Kubernetes: the backup may be older than the API server.
func TestRunBumpsAKeySpaceThatBecameKubernetes(t *testing.T) {
	t.Parallel()
	d := plainDatabase(t)
	ofKubernetes := func(_ uint64, r *pb.InternalRaftRequest) {
		if r.Put != nil {
			r.Put.Key = bytes.Replace(r.Put.Key, []byte("watched/"), []byte("/registry/pods/"), 1)
		}
	}
	for name, test := range map[string]struct {
		change   func(uint64, *pb.InternalRaftRequest)
		bump     string
		bumpedTo int64
	}{
		"Kubernetes came later": {ofKubernetes, "auto", d.revision + 20 + million1000},
		"it never came":         {asItIs, "auto", 0},
		"none is asked for":     {ofKubernetes, "0", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, to := stored.Pair(t)
			s := sealed(t, d, fixture{keys: keys, to: to}, nil)
			watchedLog(t, s, d, test.change)
			p := s.plan(t, plan.Layout{Bump: test.bump, Into: one(t, "m1")})
			r, _ := run(t, s, p)
			if r.Replayed == nil || r.BumpedTo != test.bumpedTo {
				t.Errorf("replayed %+v, revision %d, bumped to %d, want %d", r.Replayed, r.Revision, r.BumpedTo, test.bumpedTo)
			}
		})
	}
}

// Only the run knows the revision in a file.
func TestRunBumpsAFileAboveALiveCluster(t *testing.T) {
	t.Parallel()
	kubernetes := databaseWith(t, content{prefix: "/registry/pods/"})
	s := store(t, kubernetes, nil)
	file := filepath.Join(t.TempDir(), "snapshot.db")
	err := os.WriteFile(file, kubernetes.snapshot(), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for bump, want := range map[string]int64{"auto": 4 * million1000, "4000000000": 4*million1000 + kubernetes.revision, "1000": 0} {
		p, err := plan.New(catalog.Catalog{}, plan.Target{File: file}, plan.Layout{
			Members: []plan.Member{memberAt("m1", servers.FreeURLs(t, 1)[0])}, Token: "t", Bump: bump, Known: 3 * million1000, Into: one(t, "m1"),
		}, now)
		if err != nil {
			t.Fatal(err)
		}
		r, err := restore.Run(t.Context(), p, child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
		if r.BumpedTo != want || (want == 0) != errors.Is(err, fault.Refused) {
			t.Errorf("%s: bumped to %d, want %d; %v", bump, r.BumpedTo, want, err)
		}
		if want == 0 {
			wantNothing(t, p.Into)
		}
	}
}
