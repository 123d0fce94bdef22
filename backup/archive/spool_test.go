package archive_test

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/embedded"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// spooling is an agent with a spool that watches through a proxy.
type spooling struct {
	*agent
	t     *testing.T
	etcd  *embedded.Server
	proxy *objectstores.Proxy
	fault *storagetest.Fault

	store  storage.Bucket // without the fault
	config archive.Config
}

// startSpooling starts an agent, makes its store fail, and waits until a segment is in the spool.
func startSpooling(t *testing.T) spooling {
	t.Helper()
	etcd, store := embedded.Start(t, nil), mem.New()
	bucket := storagetest.Faulty(store)
	s := spooling{t: t, etcd: etcd, proxy: objectstores.NewProxy(t, strings.TrimPrefix(etcd.URL, "http://"))}
	config := configOf(etcd)
	config.Source, config.SegmentSize, config.Spool, config.SpoolMax = segment.Watch, 8<<10, t.TempDir(), 1<<30
	config.Etcd.Endpoints, config.Etcd.CommandTimeout = []string{"http://" + s.proxy.Address}, time.Second
	s.store, s.config = store, config
	s.agent = start(t, config, open(t, bucket))
	s.catchUp()
	s.putNoise("first", 3)
	s.catchUp()
	s.fault = bucket.On(storagetest.VerbPut).Always().Fail(errors.New("the store is away"))
	s.putNoise("spooled", 10)
	s.wait("it spools", func(s archive.Status) bool { return s.Spool.Segments > 1 && s.PendingRequests == 0 })
	return s
}

// putNoise writes n values of 8 KiB that cannot be compressed by more than half.
func (s spooling) putNoise(prefix string, n int) {
	s.t.Helper()
	c := s.etcd.Client(s.t)
	for i := range n {
		noise := make([]byte, 4<<10)
		rand.Read(noise)
		_, err := c.Put(s.t.Context(), fmt.Sprint(prefix, i), hex.EncodeToString(noise))
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// spoolsMore writes data, and waits until it is in the spool.
func (s spooling) spoolsMore(before int64) {
	s.t.Helper()
	s.putNoise("more", 20)
	s.wait("what is written now to be spooled", func(s archive.Status) bool { return s.Spool.Bytes > before+60<<10 && s.PendingRequests == 0 })
}

// storedWithoutGap makes the store work again, and checks that the log has no gap.
func (s spooling) storedWithoutGap() {
	s.t.Helper()
	s.fault.Times(1)
	s.catchUp()
	gaps := s.status.Load().Gaps
	if gaps > 0 {
		s.t.Errorf("gaps: %d, and the spool had room", gaps)
	}
}

// TestASpoolOutlivesABrokenWatch breaks the connection to the member while the store fails. Later changes are still spooled, so there is no gap when the
// cluster has compacted them.
func TestASpoolOutlivesABrokenWatch(t *testing.T) {
	s := startSpooling(t)
	before := s.status.Load().Spool.Bytes
	s.proxy.Cut()
	time.Sleep(100 * time.Millisecond)
	s.proxy.Restore()
	s.spoolsMore(before)
	compact(t, s.etcd)
	s.storedWithoutGap()
}

// TestASpoolOutlivesASilentMember keeps the member silent for longer than a lease while the store fails. Later changes are still spooled: without the store
// no agent could take the lease and start a new lineage.
func TestASpoolOutlivesASilentMember(t *testing.T) {
	s := startSpooling(t)
	before := s.status.Load().Spool.Bytes
	s.proxy.BlackHole()
	time.Sleep(4 * time.Second)
	s.proxy.Clear()
	s.spoolsMore(before)
	s.storedWithoutGap()
}

// TestASpoolOutlivesTheCluster makes the store fail and then kills the cluster. When the store works again, the agent stores its spool, which may be the
// last copy of the data.
func TestASpoolOutlivesTheCluster(t *testing.T) {
	if testing.Short() { // more than ten seconds
		return
	}
	s := startSpooling(t)
	durable := s.status.Load().Durable
	s.proxy.BlackHole()
	time.Sleep(2 * time.Second) // more than a lease
	s.fault.Times(1)
	s.wait("the spool to be stored", func(s archive.Status) bool { return s.Spool.Segments == 0 && s.Durable >= durable+10 })
}

// TestSpoolIsStoredAfterAnotherLineageBegan makes the store fail for two agents, one of them with a spool, until the cluster has compacted the changes that they had not
// stored. The one without a spool reaches the store first and starts a new lineage. The spooled segments still continue the old
// lineage: their agent stores them on standby, and no gap is left.
func TestSpoolIsStoredAfterAnotherLineageBegan(t *testing.T) {
	etcd, bucket := embedded.Start(t, nil), mem.New()
	forA, forB := storagetest.Faulty(bucket), storagetest.Faulty(bucket)
	config := configOf(etcd)
	config.Source, config.SegmentSize, config.Spool, config.SpoolMax = segment.Watch, 8<<10, t.TempDir(), 1<<30
	a := start(t, config, open(t, forA))
	a.catchUp()
	s := spooling{t: t, etcd: etcd, agent: a}
	s.putNoise("first", 3)
	a.catchUp()
	away := errors.New("the store is away")
	faultA, faultB := forA.On(storagetest.VerbPut).Always().Fail(away), forB.On(storagetest.VerbPut).Always().Fail(away)
	config.Spool, config.SpoolMax = "", 0
	b := start(t, config, open(t, forB))
	s.putNoise("spooled", 30)
	a.wait("it spools", func(s archive.Status) bool { return s.Spool.Segments > 1 && s.PendingRequests == 0 })
	compact(t, etcd)
	faultB.Times(1)
	b.wait("the other to begin anew", func(s archive.Status) bool { return s.State == archive.Working && s.Gaps > 0 })
	s.putNoise("meanwhile", 3)
	b.wait("the other to store", func(s archive.Status) bool { return s.StoredSegments > 0 })
	faultA.Times(1)
	a.wait("the spool to be stored on standby", func(s archive.Status) bool { return s.State == archive.Standby && s.Spool.Segments == 0 })
	catalog, err := open(t, bucket).Load(t.Context(), backups.LoadOptions{Log: true})
	if err != nil {
		t.Fatal(err)
	}
	gaps := catalog.Gaps()
	if len(catalog.Lineages) != 2 || len(gaps) != 1 || gaps[0].From != 0 {
		t.Errorf("%d lineages, gaps %+v; want two, and no revision missing between them", len(catalog.Lineages), gaps)
	}
}

// TestSpoolIsRemovedWhenEmpty stops an agent whose segments wait in the spool: they stay, and are reported. The next agent stores them,
// and removes the directory when it stops.
func TestSpoolIsRemovedWhenEmpty(t *testing.T) {
	s := startSpooling(t)
	s.stop()
	dir := filepath.Join(s.config.Spool, "prod")
	said := slices.ContainsFunc(s.said, func(m string) bool { return strings.Contains(m, "are not stored, and stay in "+dir) })
	left, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil || len(left) == 0 || !said {
		t.Errorf("the spool contains %q (%v), and the agent has reported %q", left, err, s.said)
	}
	again := start(t, s.config, open(t, s.store))
	again.wait("the spool to be stored", func(s archive.Status) bool { return s.State == archive.Working && s.Spool.Segments == 0 })
	again.stop()
	_, err = os.Stat(dir)
	if !os.IsNotExist(err) {
		t.Errorf("the directory of the spool is there: %v", err)
	}
}

// TestSpoolReportsRemovedSegments checks that segments that can never be stored are removed from the spool, and reported with their revisions.
func TestSpoolReportsRemovedSegments(t *testing.T) {
	if testing.Short() { // more than ten seconds
		return
	}
	s := startSpooling(t)
	s.stop()
	c := open(t, s.store)
	tail, err := c.Log().Tail(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := tail.Last.Header // another agent stores something else under the next name
	other.Seq, other.Previous, other.Writer = other.Seq+1, tail.Last.Digest, "another"
	other.First, other.Last, other.Reason = other.Last+1000, other.Last+1000, "records a gap"
	other.End.Position, other.Marks, other.Hashes = other.Last, nil, nil
	e, err := segment.Encode(other, []segment.Record{{Kind: segment.Change, Position: other.Last, Data: []byte("x")}}, s.config.To)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Log().StoreSegment(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	again := start(t, s.config, c)
	again.wait("the spool to be empty", func(s archive.Status) bool { return s.State == archive.Working && s.Spool.Segments == 0 })
	again.mu.Lock()
	defer again.mu.Unlock()
	if !slices.ContainsFunc(again.said, func(m string) bool { return strings.Contains(m, "is removed from the spool") }) {
		t.Errorf("it said %q", again.said)
	}
}

func compact(t *testing.T, etcd *embedded.Server) {
	t.Helper()
	client := etcd.Client(t)
	now, err := client.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Compact(t.Context(), now.Header.Revision)
	if err != nil {
		t.Fatal(err)
	}
}
