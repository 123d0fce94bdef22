package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/auth"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3alarm"
	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/etcd/server/v3/etcdserver/cindex"
	"go.etcd.io/etcd/server/v3/lease"
	serverstorage "go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

const (
	// batchLimit is how many changes are committed at once; etcd's own default.
	batchLimit = 10_000
	// mapped is how much of the file is mapped from the start, as by etcd: mapping a growing file anew waits for readers.
	mapped = 10 << 30
	// minTTL is a server's with the election timeout that etcd has by default (etcdserver.NewServer): 1.5 of it, in
	// whole seconds. A lease that is granted for less gets as much.
	minTTL = 2
	// compactionBatch is how many revisions a compaction deletes before it lets others in; here nobody waits.
	compactionBatch = 10_000
	// bcryptCost is etcd's default. Members of 3.4 hash a password when they apply it, each with a salt of its own.
	bcryptCost = 10
	// noQuota lifts the quota: a member applies the request that goes beyond it, too, and what it does then stands in
	// the log as the alarm that it raises.
	noQuota = -1
	// never is how long a request may take until etcd would log it.
	never = 1000 * time.Hour
)

// member is what a member of a cluster has, without raft: the database and etcd's packages on top of it.
type member struct {
	be      backend.Backend
	index   cindex.ConsistentIndexer
	kv      mvcc.KV
	lessor  lease.Lessor
	auth    *gate
	alarms  *v3alarm.AlarmStore
	applier apply.UberApplier
	// unalarmed is an applier for what older servers applied in spite of an alarm.
	unalarmed apply.UberApplier
	rules     rules

	alarmed bool             // an alarm is raised
	quiet   *traceutil.Trace // of what bypasses the applier
}

// open is what etcdserver's bootstrap does with a database. What cannot be read panics. A database without a consistent index
// has no place in a member's log, unless it never held a key: etcd 3.4 writes the index with the first one, so that database is
// at the log's beginning.
func open(db string, source segment.Source) (*member, error) {
	log := LastWords()
	m := &member{index: cindex.NewConsistentIndex(nil), quiet: traceutil.Get(context.Background()), rules: newest}
	m.be = backend.New(backend.BackendConfig{
		Path: db, UnsafeNoFsync: true, BatchLimit: batchLimit, BatchInterval: never, MmapSize: mapped,
		BackendFreelistType: bolt.FreelistMapType, Logger: log, Timeout: time.Second,
		Hooks: serverstorage.NewBackendHooks(log, m.index),
	})
	m.index.SetBackend(m.be)
	if version := schema.NewMembershipBackend(log, m.be).ClusterVersionFromBackend(); version != nil {
		m.rules.cluster = *version
	}
	m.lessor = lease.NewLessor(log, m.be, &m.rules, lease.LessorConfig{MinLeaseTTL: minTTL})
	m.kv = mvcc.NewStore(log, m.be, m.lessor, mvcc.StoreConfig{
		CompactionBatchLimit: compactionBatch, CompactionSleepInterval: time.Nanosecond,
	})
	if m.index.ConsistentIndex() == 0 && source == segment.WAL && m.held() {
		err := fmt.Errorf("%w: it has no consistent index and holds revisions, so it is not a member's", ErrForeign)
		m.lessor.Stop()
		return nil, errors.Join(err, m.kv.Close(), m.be.Close())
	}
	tokens, err := auth.NewTokenProvider(log, "", nil, 0) // gives none: nobody logs in here
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the auth store: %w", err), m.be.Close())
	}
	users := schema.NewAuthBackend(log, m.be)
	m.auth = &gate{AuthStore: auth.NewAuthStore(log, users, tokens, bcryptCost), be: users}
	if m.alarms, err = v3alarm.NewAlarmStore(log, schema.NewAlarmBackend(log, m.be)); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: open its alarms: %w", ErrForeign, err), m.be.Close())
	}
	m.alarmed = len(m.alarms.Get(pb.AlarmType_NONE)) > 0
	if err := m.openAppliers(log); err != nil {
		return nil, errors.Join(err, m.be.Close())
	}
	// From here on every transaction takes the place of the request that is being applied along with it.
	m.be.SetTxPostLockInsideApplyHook(takeIndex(m.index))
	m.awaitCompactions()
	return m, nil
}

// held reports whether the key space has ever held a key.
func (m *member) held() bool {
	newest, _ := m.revisions()
	return newest > 1
}

// openAppliers makes the applier that a member has, and one that sees no alarm.
func (m *member) openAppliers(log *zap.Logger) error {
	silent, err := v3alarm.NewAlarmStore(log, noAlarms{})
	if err != nil {
		return fmt.Errorf("open no alarms: %w", err)
	}
	options := apply.ApplierOptions{
		Logger: log, KV: m.kv, AlarmStore: m.alarms, AuthStore: m.auth, Lessor: m.lessor,
		Cluster: membership.NewCluster(log), RaftStatus: noRaft{}, ConsistentIndex: m.index, Backend: m.be,
		TxnModeWriteWithSharedBuffer: true, QuotaBackendBytesCfg: noQuota, WarningApplyDuration: never,
	}
	m.applier = apply.NewUberApplier(options)
	options.AlarmStore = silent
	m.unalarmed = apply.NewUberApplier(options)
	return nil
}

// noAlarms is a backend in which none is raised.
type noAlarms struct{}

func (noAlarms) CreateAlarmBucket()                       {}
func (noAlarms) MustPutAlarm(*pb.AlarmMember)             {}
func (noAlarms) MustDeleteAlarm(*pb.AlarmMember)          {}
func (noAlarms) GetAllAlarms() ([]*pb.AlarmMember, error) { return nil, nil }
func (noAlarms) ForceCommit()                             {}

// close ends in the order that etcd needs: a compaction of the store would find the backend gone.
func (m *member) close() error {
	m.awaitCompactions()
	m.lessor.Stop()
	return errors.Join(m.kv.Close(), m.auth.Close(), m.be.Close())
}

// awaitCompactions waits for what an interrupted compaction left to do, which the store resumes. The revision is older
// than any: nothing is compacted, and the store says when its queue has come to an end.
func (m *member) awaitCompactions() {
	if done, _ := m.kv.Compact(m.quiet, -1); done != nil {
		<-done
	}
}

// place is where the database is, by what stands in it.
func (m *member) place() (position, term uint64) {
	return schema.ReadConsistentIndex(m.be.ReadTx())
}

// revisions are the key space's newest and the one it is compacted to. Asking the store itself would copy what is not
// committed yet, each time.
func (m *member) revisions() (newest, compact int64) {
	tx := m.kv.Read(mvcc.SharedBufReadTxMode, m.quiet)
	defer tx.End()
	return tx.Rev(), tx.FirstRev()
}

// CountKeys returns how many keys the key space has, and whether some of them are Kubernetes'.
func CountKeys(ctx context.Context, kv mvcc.KV) (keys int64, kubernetes bool, err error) {
	all, err := kv.Range(ctx, []byte{0}, []byte{}, mvcc.RangeOptions{CountOnly: true})
	if err != nil {
		return 0, false, fmt.Errorf("count the keys: %w", err)
	}
	registry, err := kv.Range(ctx, []byte("/registry/"), []byte("/registry0"), mvcc.RangeOptions{CountOnly: true})
	if err != nil {
		return 0, false, fmt.Errorf("count the keys of Kubernetes: %w", err)
	}
	return int64(all.Count), registry.Count > 0, nil
}

// takeIndex is etcdserver's hook of the same purpose (getTxPostLockInsideApplyHook). It holds the index alone: a backend
// lives on after it was closed, and the key space must not live on with it.
func takeIndex(index cindex.ConsistentIndexer) func() {
	return func() {
		position, term := index.ConsistentApplyingIndex()
		if position > index.UnsafeConsistentIndex() {
			index.SetConsistentIndex(position, term)
		}
	}
}

// noRaft answers what the applier writes into the headers of responses, which nobody reads.
type noRaft struct{}

func (noRaft) MemberID() types.ID     { return 0 }
func (noRaft) Leader() types.ID       { return 0 }
func (noRaft) CommittedIndex() uint64 { return 0 }
func (noRaft) AppliedIndex() uint64   { return 0 }
func (noRaft) Term() uint64           { return 0 }
