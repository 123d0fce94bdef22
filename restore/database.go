package restore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-dr/etcd-dr/restore/keyspace"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// facts are read from the database.
type facts struct {
	index, term uint64 // of the last entry in it; the term is 0 if unknown
	alarms      []*pb.AlarmMember
	latest      mvcc.Revision // the last revision in the key bucket
	revision    int64         // of the key space
	keys        int64
	kubernetes  bool
}

// check opens the database read-only and checks every page. Meanwhile it reads the key space on another core, for prove.
func (r *run) check(ctx context.Context) error {
	db, err := bolt.Open(r.db, 0o400, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return fmt.Errorf("the database is %w, at stage check: %w", catalog.ErrDamaged, err)
	}
	defer db.Close()
	tx, err := db.Begin(false)
	if err != nil {
		return fmt.Errorf("the database is %w, at stage check: %w", catalog.ErrDamaged, err)
	}
	defer tx.Rollback() // after the check, which loads the list of free pages: the end of a transaction reads it
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	reading.Go(func() { r.keySpace, r.unread = r.readKeySpace(ctx, tx) })
	defer func() { // also after a panic
		cancel()
		reading.Wait()
	}()
	err = db.View(r.checkAll)
	if err != nil {
		return err
	}
	reading.Wait()
	return ctx.Err()
}

// checkAll checks the database but for the key space, and reads the facts.
func (r *run) checkAll(tx *bolt.Tx) error {
	err := checkPages(tx)
	if err != nil {
		return err
	}
	err = cmp.Or(checkSmall(tx), checkRest(tx))
	if err != nil {
		return fmt.Errorf("the database is %w, at stage check: %w", catalog.ErrDamaged, err)
	}
	r.facts, err = readFacts(tx)
	if err != nil {
		return fmt.Errorf("the database is %w, at stage check: %w", catalog.ErrDamaged, err)
	}
	err = r.checkAlarms()
	if err != nil {
		return &ObstacleError{plan.Obstacle{Base: true}, err}
	}
	return r.checkPlace()
}

// readKeySpace reads the key space while the pages are not checked yet: a damaged one can make it panic, which becomes the error.
func (r *run) readKeySpace(ctx context.Context, tx *bolt.Tx) (space keyspace.Summary, err error) {
	want, _ := r.recordedHash()
	err = guard("prove", func() error {
		space, err = keyspace.Read(ctx, tx, want.Revision)
		return err
	})
	return space, err
}

// checkPages returns an error if bbolt's checker finds damage. It reads all findings, because the checker's goroutine blocks until
// each is read.
func checkPages(tx *bolt.Tx) error {
	var first error
	count := 0
	for finding := range tx.Check() {
		count++
		if first == nil {
			first = finding
		}
	}
	if count > 0 {
		return fmt.Errorf("the database is %w, at stage check: %d findings, the first: %w", catalog.ErrDamaged, count, first)
	}
	return nil
}

// checkSmall checks the buckets that bbolt's own check leaves out: those so small that they are inside a page of their parent.
func checkSmall(tx *bolt.Tx) error {
	return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
		if bucket.Root() != 0 {
			return nil
		}
		var last []byte
		return bucket.ForEach(func(k, _ []byte) error {
			if last != nil && bytes.Compare(last, k) >= 0 {
				return fmt.Errorf("keys of bucket %q are out of order", name)
			}
			last = k
			return nil
		})
	})
}

// checkRest checks that the leases, users and roles can be decoded: a server that cannot does not start.
func checkRest(tx *bolt.Tx) error {
	for _, part := range []struct {
		bucket  backend.Bucket
		message proto.Message
	}{
		{schema.Lease, &leasepb.Lease{}}, {schema.AuthUsers, &authpb.User{}}, {schema.AuthRoles, &authpb.Role{}},
	} {
		bucket := tx.Bucket(part.bucket.Name())
		if bucket == nil {
			continue
		}
		err := bucket.ForEach(func(k, v []byte) error {
			err := proto.Unmarshal(v, part.message)
			if err != nil {
				return fmt.Errorf("%x in bucket %s cannot be decoded: %w", k, part.bucket, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readFacts reads the facts except those that the stage prove adds: revision, keys and kubernetes.
func readFacts(tx *bolt.Tx) (facts, error) {
	var f facts
	keys, meta := tx.Bucket(schema.Key.Name()), tx.Bucket(schema.Meta.Name())
	if keys == nil || meta == nil {
		return facts{}, errors.New("it is not an etcd database: the key or meta bucket is missing")
	}
	f.index, f.term = number(meta, schema.MetaConsistentIndexKeyName), number(meta, schema.MetaTermKeyName)
	last, _ := keys.Cursor().Last()
	if last != nil {
		f.latest = mvcc.BytesToRev(last)
	}
	alarms := tx.Bucket(schema.Alarm.Name())
	if alarms == nil {
		return f, nil
	}
	return f, alarms.ForEach(func(k, _ []byte) error {
		var alarm pb.AlarmMember
		err := proto.Unmarshal(k, &alarm)
		if err != nil {
			return err
		}
		f.alarms = append(f.alarms, &alarm)
		return nil
	})
}

// number returns the number at key; 0 if there is none.
func number(b *bolt.Bucket, key []byte) uint64 {
	v := b.Get(key)
	if len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

// checkAlarms refuses a database with the alarm CORRUPT, unless the plan allows it.
func (r *run) checkAlarms() error {
	for _, alarm := range r.facts.alarms {
		if alarm.Alarm == pb.AlarmType_CORRUPT && !r.plan.AllowCorrupt {
			return fmt.Errorf("%w: the alarm CORRUPT is raised in %s: take an older backup, or pass --allow-corrupt", fault.Refused, r.name())
		}
	}
	return nil
}

// prove compares the hash of the key space with the member's. It must run before the bump, which compacts the old revision: a compacted
// revision has no hash.
func (r *run) prove(ctx context.Context) error {
	why := r.proveByReading()
	if why == "" {
		return nil
	}
	r.say("prove", storage.Note, "loading the key space into etcd's store, which takes longer: %s", why)
	return r.proveByLoading(ctx)
}

// proveByReading decides by the key space that check has read. If only etcd's own code can decide, it returns why: a compaction must be
// finished first, the hash is another one than the member's, or something is malformed.
func (r *run) proveByReading() (why string) {
	want, recorded := r.recordedHash()
	switch {
	case r.unread != nil:
		return r.unread.Error()
	case recorded && !isSame(r.keySpace, want):
		return "its hash is not the member's"
	}
	r.recordFacts(r.keySpace.Revision, r.keySpace.Keys, r.keySpace.Kubernetes)
	r.result.HashKV = r.notHashed()
	if recorded {
		r.result.HashKV = provenAt(want)
	}
	return ""
}

// recordedHash returns the hash in the manifest. It is not ok if none was recorded.
func (r *run) recordedHash() (h catalog.HashKV, ok bool) {
	if r.plan.Backup == nil || r.plan.Backup.HashKV == nil {
		return h, false
	}
	return *r.plan.Backup.HashKV, true
}

// isSame reports whether the key space has the hash that a member had at a revision that both still have.
func isSame(k keyspace.Summary, h catalog.HashKV) bool {
	return k.Compacted == h.CompactRevision && max(1, k.Compacted) <= h.Revision && h.Revision <= k.Revision && k.Hash == h.Hash
}

// recordFacts records what a proof has found.
func (r *run) recordFacts(revision, keys int64, kubernetes bool) {
	r.facts.revision, r.facts.keys, r.facts.kubernetes = revision, keys, kubernetes
	r.result.Revision, r.result.Keys = revision, keys
}

func provenAt(h catalog.HashKV) string {
	return fmt.Sprintf("key space proven at revision %d", h.Revision)
}

// notHashed returns why no hash can be compared.
func (r *run) notHashed() string {
	if r.plan.Backup != nil && r.plan.Backup.HashSkipped != "" {
		return "not compared: it was not taken: " + r.plan.Backup.HashSkipped
	}
	return "not compared: no HashKV was recorded"
}

// proveByLoading loads the key space into etcd's own store.
func (r *run) proveByLoading(ctx context.Context) error {
	err := withBackend(r.db, func(be backend.Backend) error {
		store := mvcc.NewStore(replay.LastWords(), be, &lease.FakeLessor{}, mvcc.StoreConfig{})
		return errors.Join(r.proveStore(ctx, store), store.Close())
	})
	return errors.Join(err, replay.Forget(filepath.Dir(r.db)))
}

func (r *run) proveStore(ctx context.Context, store mvcc.KV) error {
	keys, kubernetes, err := replay.CountKeys(ctx, store)
	if err != nil {
		return fmt.Errorf("the database is %w, at stage prove: %w", catalog.ErrDamaged, err)
	}
	r.recordFacts(store.Rev(), keys, kubernetes)
	return r.compareHash(store)
}

// compareHash compares the key space's hash with that in the manifest, and sets the result's description of the comparison.
func (r *run) compareHash(store mvcc.KV) error {
	want, recorded := r.recordedHash()
	if !recorded {
		r.result.HashKV = r.notHashed()
		return nil
	}
	got, _, err := store.HashStorage().HashByRev(want.Revision)
	switch {
	case errors.Is(err, mvcc.ErrFutureRev):
		return fmt.Errorf("backup %s is %w, at stage prove: its key space ends at revision %d, its manifest names %d",
			r.plan.Backup.ID, catalog.ErrDamaged, r.facts.revision, want.Revision)
	case err == nil && got.CompactRevision < want.CompactRevision:
		return fmt.Errorf("backup %s is %w, at stage prove: it was compacted up to revision %d, the member up to %d before the snapshot",
			r.plan.Backup.ID, catalog.ErrDamaged, got.CompactRevision, want.CompactRevision)
	case errors.Is(err, mvcc.ErrCompacted) || err == nil && got.CompactRevision != want.CompactRevision:
		r.result.HashKV = "not compared: the cluster compacted between the hash and the snapshot"
		r.say("prove", storage.Warning, "HashKV %s", r.result.HashKV)
		return nil
	case err != nil:
		return fmt.Errorf("hash the key space: %w", err)
	case got.Hash != want.Hash:
		return fmt.Errorf("backup %s is %w, at stage prove: HashKV at revision %d is %08x, the member reported %08x",
			r.plan.Backup.ID, catalog.ErrDamaged, want.Revision, got.Hash, want.Hash)
	}
	r.result.HashKV = provenAt(want)
	return nil
}

// edit turns the database into that of the new cluster: members, revisions, alarms, consistent index. All members of one restore get
// the same bytes.
func (r *run) edit(m *membershipOf) error {
	return withBackend(r.db, func(be backend.Backend) error { return r.editBackend(be, m) })
}

func (r *run) editBackend(be backend.Backend, m *membershipOf) error {
	err := m.write(be)
	if err != nil {
		return err
	}
	latest := max(r.facts.latest.Main, r.facts.revision)
	to, err := r.plan.Bump.ContinueFrom(latest, r.facts.kubernetes)
	if err != nil {
		return err
	}
	if to > latest {
		bump(be, to)
		r.result.BumpedTo = to
	}
	if !r.plan.KeepAlarms {
		r.result.Cleared = clearAlarms(be, r.facts.alarms)
	}
	return nil
}

// bump sets the revision to the one named to, as etcdutl snapshot restore --bump-revision --mark-compacted does (etcdutl/snapshot,
// modifyLatestRevision): it writes that revision without content, and schedules a compaction up to it.
func bump(be backend.Backend, to int64) {
	tx := be.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	tx.UnsafePut(schema.Key, mvcc.RevToBytes(mvcc.Revision{Main: to}, mvcc.NewRevBytes()), []byte{})
	mvcc.UnsafeSetScheduledCompact(tx, to)
}

// clearAlarms removes the alarms, and returns the name of each kind.
func clearAlarms(be backend.Backend, alarms []*pb.AlarmMember) (names []string) {
	tx := be.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	for _, alarm := range alarms {
		key, err := proto.Marshal(alarm)
		if err != nil {
			panic(err) // it was unmarshalled before, so it marshals
		}
		tx.UnsafeDelete(schema.Alarm, key)
		names = append(names, alarm.Alarm.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// withBackend opens the database for writing, calls do, and closes it. It syncs nothing: the run syncs everything at its end. If do
// panics, the database stays open, because closing could block for ever on locks that are held. After such a panic the process ends soon.
func withBackend(path string, do func(backend.Backend) error) error {
	be := backend.New(backend.BackendConfig{
		Path: path, UnsafeNoFsync: true, BatchLimit: 10000, BatchInterval: time.Hour, Logger: replay.LastWords(), Timeout: time.Second,
	})
	err := do(be)
	return errors.Join(err, be.Close())
}

// announce reports the changes of the database that an operator should know.
func (r *run) announce() {
	if len(r.result.Cleared) > 0 {
		r.say("build", storage.Note, "cleared the alarms %s", strings.Join(r.result.Cleared, ", "))
	}
	if r.result.BumpedTo > 0 {
		r.say("build", storage.Note, "revisions continue from %d: %s", r.result.BumpedTo, r.plan.Bump.Reason)
	}
}
