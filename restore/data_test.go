package restore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/storage/stores"
	testdb "github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// content describes the content of a test's database.
type content struct {
	prefix string // of its keys
	alarms []pb.AlarmType
	member string // name of an old member; "": the database names none
}

// database is a member's member/snap/db, with the revision, number of keys and hash that the member reports for it.
type database struct {
	bytes    []byte
	revision int64
	keys     int64
	hash     catalog.HashKV
}

// snapshot returns the database as etcd sends it: followed by its digest.
func (d database) snapshot() []byte {
	sum := sha256.Sum256(d.bytes)
	return append(bytes.Clone(d.bytes), sum[:]...)
}

const (
	rounds     = 40 // puts a key
	keysOf     = 20
	compactsAt = 100
)

var plain = sync.OnceValues(func() (database, error) { return newDatabase(content{prefix: "key/"}) })

// plainDatabase returns a database without Kubernetes' keys and without alarms.
func plainDatabase(t testing.TB) database {
	t.Helper()
	d, err := plain()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func databaseWith(t testing.TB, c content) database {
	t.Helper()
	d, err := newDatabase(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// newDatabase writes puts, deletes and a compaction; the same content gives the same key space.
func newDatabase(c content) (database, error) {
	dir, err := os.MkdirTemp("", "dr-restore-test-*")
	if err != nil {
		return database{}, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "db")
	var d database
	err = testdb.Write(path, func(be backend.Backend, store mvcc.KV) error {
		tx := be.BatchTx()
		tx.LockOutsideApply()
		schema.UnsafeUpdateConsistentIndex(tx, 2000, 2)
		tx.Unlock()
		for _, alarm := range c.alarms {
			schema.NewAlarmBackend(zap.NewNop(), be).MustPutAlarm(&pb.AlarmMember{MemberID: 7, Alarm: alarm})
		}
		if c.member != "" {
			members := schema.NewMembershipBackend(zap.NewNop(), be)
			members.MustCreateBackendBuckets()
			members.MustSaveMemberToBackend(&membership.Member{ID: 7, Attributes: membership.Attributes{Name: c.member}})
		}
		return d.fill(store, c)
	})
	if err != nil {
		return database{}, err
	}
	d.bytes, err = os.ReadFile(path)
	return d, err
}

func (d *database) fill(store mvcc.KV, c content) error {
	for round := range rounds {
		for i := range keysOf {
			value := strings.Repeat(fmt.Sprintf("%d-%d ", round, i), 20)
			d.revision = store.Put(fmt.Appendf(nil, "%s%04d", c.prefix, i), []byte(value), lease.NoLease)
		}
	}
	_, d.revision = store.DeleteRange(fmt.Appendf(nil, "%s%04d", c.prefix, 3), nil)
	d.keys = keysOf - 1
	compacted, err := store.Compact(traceutil.Get(context.Background()), compactsAt)
	if err != nil {
		return err
	}
	<-compacted
	store.Commit()
	hash, _, err := store.HashStorage().HashByRev(d.revision)
	d.hash = catalog.HashKV{Revision: d.revision, CompactRevision: hash.CompactRevision, Hash: hash.Hash}
	return err
}

const clusterName = "prod"

var started = time.Date(2026, 11, 21, 9, 24, 33, 0, time.UTC)

// fixture is a repository with one backup.
type fixture struct {
	dir     string
	cluster *repository.Cluster
	backup  catalog.Backup
	keys    seal.Keys
	to      seal.Recipients
}

// store seals d into a new file repository; change may alter the manifest.
func store(t testing.TB, d database, change func(*catalog.Manifest)) fixture {
	t.Helper()
	return sealed(t, d, fixture{}, change)
}

// storeSealed is like store, with encryption.
func storeSealed(t testing.TB, d database) fixture {
	t.Helper()
	keys, to := stored.Pair(t)
	return sealed(t, d, fixture{keys: keys, to: to}, nil)
}

func sealed(t testing.TB, d database, s fixture, change func(*catalog.Manifest)) fixture {
	t.Helper()
	s.dir = t.TempDir()
	bucket, err := file.Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	s.cluster, err = repository.Open(bucket, clusterName)
	if err != nil {
		t.Fatal(err)
	}
	source, err := seal.New(bytes.NewReader(d.snapshot()), s.to)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	manifest := manifestOf(d)
	if change != nil {
		change(&manifest)
	}
	s.backup, err = stored.CreateFrom(t.Context(), s.cluster, catalog.NewID(started, d.revision), s.to.Seal(), source,
		func() (catalog.Manifest, error) { return manifest, nil })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func manifestOf(d database) catalog.Manifest {
	plain := d.snapshot()
	sum := sha256.Sum256(plain)
	members := stored.ThreeMembers()
	return catalog.Manifest{
		Started: started, Finished: started.Add(2 * time.Second), DRVersion: "test",
		ClusterID: "cafe", Member: members[0], Members: members, EtcdVersion: "3.7.3",
		Revision: d.revision, HashKV: &d.hash,
		Plain: catalog.Blob{Name: "snapshot.db", Size: int64(len(plain)), SHA256: hex.EncodeToString(sum[:])},
	}
}

func (s fixture) source() child.Source {
	return child.NewSource(child.Repository{URL: "file://" + s.dir, Options: stores.Options{}, Cluster: clusterName, Trust: sign.Trust{}}, s.keys)
}

func (s fixture) catalog(t testing.TB) catalog.Catalog {
	t.Helper()
	catalog, err := s.cluster.Load(t.Context(), backups.LoadOptions{Proofs: true, Log: true})
	if err != nil {
		t.Fatal(err)
	}
	return catalog
}

// plan returns a plan for the newest backup of s, and fails the test if there is none.
func (s fixture) plan(t testing.TB, l plan.Layout) plan.Plan {
	t.Helper()
	if l.Token == "" {
		l.Token = "token"
	}
	p, err := plan.New(s.catalog(t), plan.Target{}, l, started.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// all places every member below a dir that does not exist yet.
func all(t testing.TB) plan.Into {
	return plan.Into{OutputDir: filepath.Join(t.TempDir(), "restored")}
}

// one places one member.
func one(t testing.TB, name string) plan.Into {
	return plan.Into{Name: name, DataDir: filepath.Join(t.TempDir(), "etcd")}
}

func (s fixture) object() string {
	return filepath.Join(s.dir, clusterName, "backups", string(s.backup.ID), s.backup.Stored.Name)
}

func digestOf(t testing.TB, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// wantNothing checks that there is neither a target nor a work dir.
func wantNothing(t testing.TB, into plan.Into) {
	t.Helper()
	target := into.OutputDir + into.DataDir
	_, err := os.Lstat(target)
	if !os.IsNotExist(err) {
		t.Errorf("%s is there: %v", target, err)
	}
	wantNoWork(t, filepath.Dir(target))
}

func wantNoWork(t testing.TB, dir string) {
	t.Helper()
	for _, name := range workDirs(t, dir) {
		t.Errorf("a work dir was left: %s", name)
	}
}

func workDirs(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".dr-restore-") {
			found = append(found, filepath.Join(dir, e.Name()))
		}
	}
	return found
}

var now = started.Add(90 * time.Minute)

func memberAt(name string, urls ...string) plan.Member {
	return plan.Member{Name: name, PeerURLs: urls}
}

// lineage is the id of the log that a test stores.
const lineage = "000000000000000000000000000000a0"

func hasNote(p plan.Plan, words string) bool {
	return slices.ContainsFunc(p.Notes, func(n string) bool { return strings.Contains(n, words) })
}
