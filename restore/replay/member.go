package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

const (
	// batchLimit is the number of changes in one commit; etcd's default.
	batchLimit = 10_000
	// mapped is the size in bytes of the initial mapping of the file, as in etcd: remapping a growing file waits for readers.
	mapped = 10 << 30
	// minTTL is the shortest time to live of a lease, in seconds, of a server with etcd's default election timeout: 1.5 times
	// the timeout, rounded up (etcdserver.NewServer). A lease granted for less gets this much.
	minTTL = 2
	// compactionBatch is the number of revisions that a compaction deletes before it yields. A large batch delays nothing here.
	compactionBatch = 10_000
	// bcryptCost is etcd's default for hashing passwords. The log of a member of 3.4 has passwords in plain text: each member hashes
	// them with its own salt when it applies the request.
	bcryptCost = 10
	// noQuota lifts the quota: a member also applies the request that exceeds it, and the alarm that it then raises is in the
	// log.
	noQuota = -1
	// never is longer than any replay. It disables commits by time, and etcd's warnings about slow requests.
	never = 1000 * time.Hour
)

// member has the state of a cluster's member without raft: the database and etcd's packages on top of it.
type member struct {
	be         backend.Backend
	consistent cindex.ConsistentIndexer
	keys       keySpace
	indexed    *indexed // not nil: keys is this
	store      stored   // keys if indexed is nil
	lessor     lease.Lessor
	auth       *gate
	alarms     *v3alarm.AlarmStore
	applier    apply.UberApplier // of store
	// unalarmed applies requests that older servers applied in spite of an alarm.
	unalarmed apply.UberApplier
	silent    *v3alarm.AlarmStore // sees no alarm
	rules     rules

	waits     int   // direct requests since the last one that is faster with etcd's store, or that only the store serves
	reopenAt  int   // number of waits at which an index replaces the store
	onlyStore bool  // whether the key space is such that only etcd's store may be used
	resumed   int64 // revision of the compaction that was finished at the start, until the server's version is known; 0: none

	alarmed  bool             // whether an alarm is raised
	disputed uint64           // position of the last transaction that the replay refuses and some members applied; 0: none
	quiet    *traceutil.Trace // the trace of writes that bypass the applier
}

// open opens a database as etcdserver's bootstrap does. It panics if the database cannot be read. It refuses a database with
// keys but without a consistent index, which has no position in a member's log. A database with neither keys nor an index is at
// the log's beginning: etcd 3.4 writes the index with the first key.
func open(db string, source segment.Source) (*member, error) {
	log := LastWords()
	m := &member{consistent: cindex.NewConsistentIndex(nil), quiet: traceutil.Get(context.Background()), rules: newest}
	m.be = backend.New(backend.BackendConfig{
		Path: db, UnsafeNoFsync: true, BatchLimit: batchLimit, BatchInterval: never, MmapSize: mapped,
		BackendFreelistType: bolt.FreelistMapType, Logger: log, Timeout: time.Second,
		Hooks: serverstorage.NewBackendHooks(log, m.consistent),
	})
	m.consistent.SetBackend(m.be)
	version := schema.NewMembershipBackend(log, m.be).ClusterVersionFromBackend()
	if version != nil {
		m.rules.cluster = *version
	}
	m.lessor = lease.NewLessor(log, m.be, &m.rules, lease.LessorConfig{MinLeaseTTL: minTTL})
	m.openKeys()
	err := m.openRest(log, source)
	if err != nil {
		m.lessor.Stop()
		return nil, errors.Join(err, m.closeStore(), m.be.Close())
	}
	// From here on every transaction also stores the position of the request that is being applied.
	m.be.SetTxPostLockInsideApplyHook(takeIndex(m.consistent))
	return m, nil
}

// openRest opens the auth store and the alarms.
func (m *member) openRest(log *zap.Logger, source segment.Source) error {
	if m.consistent.ConsistentIndex() == 0 && source == segment.WAL && m.everHadKeys() {
		return fmt.Errorf("%w: it has no consistent index and holds revisions, so it is not a member's", ErrForeign)
	}
	var err error
	m.silent, err = v3alarm.NewAlarmStore(log, noAlarms{})
	if err != nil {
		return fmt.Errorf("open no alarms: %w", err)
	}
	m.alarms, err = v3alarm.NewAlarmStore(log, schema.NewAlarmBackend(log, m.be))
	if err != nil {
		return fmt.Errorf("%w: open its alarms: %w", ErrForeign, err)
	}
	m.alarmed = len(m.alarms.Get(pb.AlarmType_NONE)) > 0
	tokens, err := auth.NewTokenProvider(log, "", nil, 0) // an empty name selects the provider that issues no tokens: logins are not replayed
	if err != nil {
		return fmt.Errorf("open the auth store: %w", err)
	}
	users := schema.NewAuthBackend(log, m.be)
	m.auth = &gate{AuthStore: auth.NewAuthStore(log, users, tokens, bcryptCost), be: users}
	return nil
}

// everHadKeys reports whether the key space has ever contained a key.
func (m *member) everHadKeys() bool {
	newest, _ := m.keys.revisions()
	return newest > 1
}

// openAppliers creates the applier of a member, and one that sees no alarm.
func (m *member) openAppliers() {
	log := LastWords()
	options := apply.ApplierOptions{
		Logger: log, KV: m.store.KV, AlarmStore: m.alarms, AuthStore: m.auth, Lessor: m.lessor,
		Cluster: membership.NewCluster(log), RaftStatus: noRaft{}, ConsistentIndex: m.consistent, Backend: m.be,
		TxnModeWriteWithSharedBuffer: true, QuotaBackendBytesCfg: noQuota, WarningApplyDuration: never,
	}
	m.applier = apply.NewUberApplier(options)
	options.AlarmStore = m.silent
	m.unalarmed = apply.NewUberApplier(options)
}

// noAlarms is a store of alarms that stays empty.
type noAlarms struct{}

func (noAlarms) CreateAlarmBucket()                       {}
func (noAlarms) MustPutAlarm(*pb.AlarmMember)             {}
func (noAlarms) MustDeleteAlarm(*pb.AlarmMember)          {}
func (noAlarms) GetAllAlarms() ([]*pb.AlarmMember, error) { return nil, nil }
func (noAlarms) ForceCommit()                             {}

// close closes the parts of m in the order that etcd needs: a compaction of the store must not outlive the backend.
func (m *member) close() error {
	m.lessor.Stop()
	return errors.Join(m.closeStore(), m.auth.Close(), m.be.Close())
}

// place returns the position and the term that the database stores.
func (m *member) place() (position, term uint64) {
	return schema.ReadConsistentIndex(m.be.ReadTx())
}

// takeIndex returns a hook that stores the position of the request that is being applied, as etcdserver does
// (getTxPostLockInsideApplyHook). It refers to the index alone: a backend remains reachable after it is closed, and must not
// keep the key space in memory.
func takeIndex(index cindex.ConsistentIndexer) func() {
	return func() {
		position, term := index.ConsistentApplyingIndex()
		if position > index.UnsafeConsistentIndex() {
			index.SetConsistentIndex(position, term)
		}
	}
}

// noRaft supplies the headers of the applier's responses, which are discarded.
type noRaft struct{}

func (noRaft) MemberID() types.ID     { return 0 }
func (noRaft) Leader() types.ID       { return 0 }
func (noRaft) CommittedIndex() uint64 { return 0 }
func (noRaft) AppliedIndex() uint64   { return 0 }
func (noRaft) Term() uint64           { return 0 }
