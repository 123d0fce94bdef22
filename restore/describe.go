package restore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Description describes a database and its cluster, as far as the database shows. It does not contain the cluster's id.
type Description struct {
	Revision int64            `json:"revision"` // of the key space
	Keys     int64            `json:"keys"`
	Index    uint64           `json:"index"` // raft index of the last entry in it; 0: unknown
	Term     uint64           `json:"term"`  // of that entry; 0: unknown, as in etcd 3.4
	HashKV   catalog.HashKV   `json:"hashKV"`
	Version  string           `json:"version"` // minor version of the cluster, such as 3.5; "": unknown, as in etcd 3.4
	Members  []catalog.Member `json:"members"` // by id

	Auth                bool     `json:"auth"`
	Kubernetes          bool     `json:"kubernetes"`
	KubernetesEncrypted bool     `json:"kubernetesEncrypted"`
	Alarms              []string `json:"alarms"`
}

// Describe reads the description of the database in the file db. It may write to the file: etcd's store finishes a compaction that the
// server had begun. A damaged database may end the process, as with Run.
func Describe(ctx context.Context, db string) (d Description, err error) {
	err = withBackend(db, func(be backend.Backend) error {
		store := mvcc.NewStore(replay.LastWords(), be, &lease.FakeLessor{}, mvcc.StoreConfig{})
		return errors.Join(d.readKeys(ctx, store), d.readCluster(be), store.Close())
	})
	return d, errors.Join(err, replay.Forget(filepath.Dir(db)))
}

func (d *Description) readKeys(ctx context.Context, store mvcc.KV) (err error) {
	d.Revision = store.Rev()
	d.Keys, d.Kubernetes, err = replay.CountKeys(ctx, store)
	if err != nil {
		return err
	}
	hash, _, err := store.HashStorage().HashByRev(d.Revision)
	if err != nil {
		return fmt.Errorf("hash the key space: %w", err)
	}
	d.HashKV = catalog.HashKV{Revision: hash.Revision, CompactRevision: hash.CompactRevision, Hash: hash.Hash}
	secrets, err := store.Range(ctx, []byte("/registry/secrets/"), []byte("/registry/secrets0"), mvcc.RangeOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("read a Secret of Kubernetes: %w", err)
	}
	d.KubernetesEncrypted = len(secrets.KVs) > 0 && bytes.HasPrefix(secrets.KVs[0].Value, []byte("k8s:enc:"))
	return nil
}

// readCluster reads everything outside the key space. It panics if a part is malformed.
func (d *Description) readCluster(be backend.Backend) error {
	d.Index, d.Term = schema.ReadConsistentIndex(be.ReadTx())
	cluster := schema.NewMembershipBackend(replay.LastWords(), be)
	members, _ := cluster.MustReadMembersFromBackend()
	for _, m := range members {
		d.Members = append(d.Members, catalog.Member{
			ID: m.ID.String(), Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, Learner: m.IsLearner,
		})
	}
	slices.SortFunc(d.Members, func(a, b catalog.Member) int { return cmp.Compare(a.ID, b.ID) })
	version := cluster.ClusterVersionFromBackend()
	if version != nil {
		d.Version = fmt.Sprintf("%d.%d", version.Major, version.Minor)
	}
	users := schema.NewAuthBackend(replay.LastWords(), be).ReadTx()
	users.RLock()
	d.Auth = users.UnsafeReadAuthEnabled()
	users.RUnlock()
	alarms, err := schema.NewAlarmBackend(replay.LastWords(), be).GetAllAlarms()
	if err != nil {
		return fmt.Errorf("read the alarms: %w", err)
	}
	for _, a := range alarms {
		d.Alarms = append(d.Alarms, a.Alarm.String())
	}
	slices.Sort(d.Alarms)
	d.Alarms = slices.Compact(d.Alarms)
	return nil
}
