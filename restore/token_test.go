package restore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.uber.org/zap"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// As etcd's documentation has it: each host restores its own member from the same file, and no host knows of the others' runs.
func TestRestoresOfOneMemberEachFormOneCluster(t *testing.T) {
	t.Parallel()
	d := plainDatabase(t)
	file := filepath.Join(t.TempDir(), "snapshot.db")
	err := os.WriteFile(file, d.snapshot(), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := restore.FileDigest(file, false)
	if err != nil {
		t.Fatal(err)
	}
	urls := servers.FreeURLs(t, 3)
	names := []string{"m1", "m2", "m3"}
	var members []plan.Member
	for i, name := range names {
		members = append(members, memberAt(name, urls[i]))
	}
	var launched []*embed.Etcd
	for i, name := range names {
		into := one(t, name)
		p, err := plan.New(catalog.Catalog{}, plan.Target{File: file, FileDigest: digest},
			plan.Layout{Members: members, Into: into}, now)
		if err != nil {
			t.Fatal(err)
		}
		_, err = restore.Run(t.Context(), p, child.Opened{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		launched = append(launched, launch(t, name, into.DataDir, p.InitialCluster(), urls[i]))
	}
	for _, e := range launched {
		wait(t, e)
	}
	wantServing(t, launched, d)
}

// The file on another host may be another one of the same name.
func TestRestoreOfAnotherFileThanPlannedIsRefused(t *testing.T) {
	p := filePlan(t, plainDatabase(t).snapshot(), false)
	p.FileDigest = strings.Repeat("0", 64)
	_, err := restore.Run(t.Context(), p, child.Opened{}, nil)
	if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), "is not the file that the plan was made for") {
		t.Errorf("error %v", err)
	}
	wantNothing(t, p.Into)
}

// The cluster id of a restored cluster shows in later backups that dr created it.
func TestTokenMarksTheClusterID(t *testing.T) {
	p, err := plan.New(store(t, plainDatabase(t), nil).catalog(t), plan.Target{}, plan.Layout{Salt: "random"}, now)
	if err != nil {
		t.Fatal(err)
	}
	urls, err := types.NewURLsMap(p.InitialCluster())
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := membership.NewClusterFromURLsMap(zap.NewNop(), p.Token, urls)
	if err != nil {
		t.Fatal(err)
	}
	id := cluster.ID().String()
	if !catalog.IsRestored(clusterName, id) || catalog.IsRestored("another", id) {
		t.Errorf("cluster id %s, mark %s", id, catalog.RestoreMark(clusterName))
	}
}
