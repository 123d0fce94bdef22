package repository_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/copying"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// fill stores five backups with a proof each, and two lineages: one of 40 segments in three indexes, and a later one.
func fill(tb testing.TB, c *repository.Cluster) {
	tb.Helper()
	for i := range 5 {
		stored.Create(tb, c, stored.IDAt(i))
		stored.AppendProof(tb, c, stored.ProofOf(stored.IDAt(i), catalog.Hashed, catalog.Passed, 1))
	}
	w := stored.NewWriter(tb, c.Name(), stored.LineageID(0))
	w.Key = c.Policy().Key
	first := w.Some(40)
	stored.StoreSegments(tb, c, first...)
	for _, to := range [][2]int{{0, 10}, {10, 20}, {20, 35}} {
		stored.StoreIndex(tb, c, stored.SegmentsOf(first)[to[0]:to[1]])
	}
	w = stored.NewWriter(tb, c.Name(), stored.LineageID(1))
	w.Key = c.Policy().Key
	stored.StoreSegments(tb, c, w.Next(func(h *segment.Header) {
		h.Reason, h.Written = "restored", stored.At(100)
		h.After = &segment.After{Lineage: stored.LineageID(0), Seq: 40, Position: 400, Time: stored.At(40)}
		h.Marks = []segment.Mark{stored.MarkAt(h.Last, 100)}
	}))
}

// removal returns the removal of three backups, and of the first lineage up to a segment.
func removal(upto uint64) repository.Removal {
	r := repository.Removal{Log: []log.Tombstone{{Lineage: stored.LineageID(0), Upto: upto, Reason: "too old", Time: stored.Noon, By: "test"}}}
	for _, i := range []int{2, 1, 0} {
		r.Backups = append(r.Backups, catalog.Tombstone{Backup: stored.IDAt(i), Reason: "too old", Time: stored.Noon, By: "test"})
	}
	return r
}

func pruneOptions(later time.Duration) repository.PruneOptions {
	return repository.PruneOptions{Grace: stored.Grace, Now: time.Now().Add(later)}
}

// leftBehind25 returns the keys that a prune up to segment 25 keeps after its grace.
func leftBehind25() []string {
	var want []string
	for _, i := range []int{3, 4} {
		want = append(want, stored.Folder("c", stored.IDAt(i))+"manifest.json", stored.Folder("c", stored.IDAt(i))+"proof-20261121T130000.000Z.json", stored.Folder("c", stored.IDAt(i))+stored.PlainName)
	}
	want = append(want, "c/leases/clock.json") // StoreTime writes it
	for seq := uint64(26); seq <= 40; seq++ {
		want = append(want, stored.SegmentKey("c", stored.LineageID(0), seq))
	}
	return append(want, stored.IndexKey("c", stored.LineageID(0), 21), logTombstoneKey(stored.LineageID(0), 25), stored.SegmentKey("c", stored.LineageID(1), 1), "c/repository.json")
}

func logTombstoneKey(lineage string, upto uint64) string {
	return fmt.Sprintf("c/log/%s/tombstone-%016x.json", lineage, upto)
}

// wantPruned fails unless exactly the backups and segments that are not in removal(25) are listed, without a fault.
func wantPruned(tb testing.TB, b storage.Bucket) {
	tb.Helper()
	c := stored.OpenCluster(tb, b, "c")
	cat := stored.Load(tb, c, backups.LoadOptions{Proofs: true, Log: true})
	stored.WantIDs(tb, cat, []catalog.ID{stored.IDAt(4), stored.IDAt(3)}, nil)
	if len(cat.Lineages) != 2 || cat.Lineages[0].Pruned != 25 {
		tb.Fatalf("lineages %+v", cat.Lineages)
	}
	stored.WantLineage(tb, "pruned", cat.Lineages[0], "26-40", "")
	stored.WantLineage(tb, "the other", cat.Lineages[1], "1-1", "")
}

// TestPrune checks that deleted backups disappear from the catalog at once and from the store after the grace, and never count
// as damaged.
func TestPrune(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		fill(t, c)
		fill(t, stored.OpenCluster(t, b, "c1"))
		all := len(stored.Keys(t, b))
		dry := pruneOptions(0)
		dry.DryRun = true
		before := stored.Keys(t, b)
		result, err := c.Prune(t.Context(), removal(25), dry, nil)
		if err != nil || len(result.Deleted) != 3 || len(result.Log) != 1 || !slices.Equal(stored.Keys(t, b), before) {
			t.Fatalf("a dry run: %+v, %v, %d objects", result, err, len(stored.Keys(t, b)))
		}
		result, err = c.Prune(t.Context(), removal(25), pruneOptions(0), nil)
		if err != nil || !slices.Equal(result.Deleted, []catalog.ID{stored.IDAt(0), stored.IDAt(1), stored.IDAt(2)}) || len(result.Log) != 1 ||
			len(result.Swept)+len(result.Locked)+len(result.Pinned) > 0 {
			t.Fatalf("%+v, %v", result, err)
		}
		wantPruned(t, b)
		n := len(stored.Keys(t, b))
		if n != all+4-3 {
			t.Errorf("%d objects are left of %d: four tombstones come, three manifests go", n, all)
		}
		dry.Now = dry.Now.Add(2 * stored.Grace)
		result, err = c.Prune(t.Context(), repository.Removal{}, dry, nil)
		want := 3*3 + 25 + 2
		if err != nil || len(result.Swept) != want {
			t.Fatalf("a dry run would sweep %d, %v, want %d", len(result.Swept), err, want)
		}
		result, err = c.Prune(t.Context(), removal(25), pruneOptions(2*stored.Grace), nil)
		if err != nil || len(result.Swept) != 3*3+25+2 || len(result.Deleted) > 0 {
			t.Fatalf("%+v, %v", result, err)
		}
		wantPruned(t, b)
		mine := slices.DeleteFunc(stored.Keys(t, b), func(key string) bool { return strings.HasPrefix(key, "c1/") })
		diff := cmp.Diff(leftBehind25(), mine)
		if diff != "" {
			t.Error(diff)
		}
		got := len(stored.Keys(t, b)) - len(mine)
		if got != all/2 {
			t.Errorf("another cluster has %d objects, want %d", got, all/2)
		}
	})
}

// TestPruneKilled checks that a prune killed at any request leaves a catalog of whole backups, with all that must stay, and
// that the next prune completes it.
func TestPruneKilled(t *testing.T) {
	each := 1
	if testing.Short() {
		each = 7
	}
	t.Run("mem", func(t *testing.T) { killPrune(t, each, func() storage.Bucket { return mem.New() }) })
	t.Run("file", func(t *testing.T) { killPrune(t, 29, func() storage.Bucket { return stored.OpenFile(t, t.TempDir()) }) })
}

// killPrune kills a prune after 0, each, 2*each, ... requests, until a prune completes.
func killPrune(t *testing.T, each int, open func() storage.Bucket) {
	t.Helper()
	for n, alive := 0, false; !alive; n += each {
		below := open()
		fill(t, stored.OpenCluster(t, below, "c"))
		b := &dying{Bucket: below}
		b.left.Store(int64(n))
		prunedDespite(t, below, b)
		alive = b.left.Load() >= 0
		if t.Failed() {
			t.Fatalf("killed behind %d requests", n)
		}
	}
}

// TestPruneAnswerLost checks the same if the answer to one request is lost.
func TestPruneAnswerLost(t *testing.T) {
	for _, verb := range []storagetest.Verb{storagetest.VerbPut, storagetest.VerbDelete} {
		for n, none := 1, false; !none; n++ {
			below := mem.New()
			b := storagetest.Faulty(below)
			fill(t, stored.OpenCluster(t, b, "c"))
			b.On(verb).Nth(n).FailLate(stored.ErrTest)
			begun := b.Calls(verb)
			prunedDespite(t, below, b)
			none = b.Calls(verb)-begun < n
			if t.Failed() {
				t.Fatalf("the answer to %s %d was lost", verb, n)
			}
		}
	}
}

// prunedDespite prunes through b twice, the second time after the grace, and then completes the prune through below.
func prunedDespite(t *testing.T, below, b storage.Bucket) {
	t.Helper()
	for _, later := range []time.Duration{0, 2 * stored.Grace} {
		_, err := stored.OpenCluster(t, b, "c").Prune(t.Context(), removal(25), pruneOptions(later), nil)
		if err != nil && !errors.Is(err, stored.ErrTest) {
			t.Error(err)
		}
		wantWhole(t, below)
	}
	for _, later := range []time.Duration{3 * stored.Grace, 5 * stored.Grace} { // the second removes the objects that the first deletes
		_, err := stored.OpenCluster(t, below, "c").Prune(t.Context(), removal(25), pruneOptions(later), nil)
		if err != nil {
			t.Error(err)
		}
	}
	wantPruned(t, below)
	diff := cmp.Diff(leftBehind25(), stored.Keys(t, below))
	if diff != "" {
		t.Error(diff)
	}
}

// dying is the Bucket of a process that is killed after a number of requests.
type dying struct {
	storage.Bucket
	left atomic.Int64
}

func (d *dying) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	if d.left.Add(-1) < 0 {
		return storage.Object{}, stored.ErrTest
	}
	return d.Bucket.Put(ctx, key, r, o)
}

func (d *dying) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	if d.left.Add(-1) < 0 {
		return nil, storage.Object{}, stored.ErrTest
	}
	return d.Bucket.Open(ctx, key, o)
}

func (d *dying) Stat(ctx context.Context, key string) (storage.Object, error) {
	if d.left.Add(-1) < 0 {
		return storage.Object{}, stored.ErrTest
	}
	return d.Bucket.Stat(ctx, key)
}

func (d *dying) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	if d.left.Add(-1) < 0 {
		return func(yield func(storage.Object, error) bool) { yield(storage.Object{}, stored.ErrTest) }
	}
	return d.Bucket.List(ctx, o)
}

func (d *dying) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	if d.left.Add(-1) < 0 {
		return stored.ErrTest
	}
	return d.Bucket.Delete(ctx, key, o)
}

// wantWhole fails if a listed backup is damaged, or one that must stay is missing.
func wantWhole(tb testing.TB, b storage.Bucket) {
	tb.Helper()
	c := stored.OpenCluster(tb, b, "c")
	catalog := stored.Load(tb, c, backups.LoadOptions{Proofs: true, Log: true})
	listed := stored.IDs(catalog)
	if len(catalog.Damaged) > 0 || !slices.Contains(listed, stored.IDAt(3)) || !slices.Contains(listed, stored.IDAt(4)) {
		tb.Errorf("%q, damaged %q", listed, stored.DamagedIDs(catalog))
	}
	for _, backup := range catalog.Backups {
		stored.WantContent(tb, c, backup)
	}
	for _, l := range catalog.Lineages {
		if len(l.Faults) > 0 {
			tb.Errorf("faults %+v", l.Faults)
		}
	}
	spans := stored.Spans(catalog.Lineages[0].Stretches())
	if spans != "1-40" && spans != "26-40" {
		tb.Errorf("the log has %s", spans)
	}
}

// TestPruneOn prunes a lineage several times, and at last as a whole. The grace of each segment must begin only once.
func TestPruneOn(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	fill(t, c)
	gaps := stored.Load(t, c, backups.LoadOptions{Log: true}).Gaps()
	if len(gaps) != 1 {
		t.Fatalf("gaps %+v", gaps)
	}
	for _, upto := range []uint64{5, 15, 40} {
		r := repository.Removal{Log: removal(upto).Log}
		_, err := c.Prune(t.Context(), r, pruneOptions(0), nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	catalog := stored.Load(t, c, backups.LoadOptions{Log: true})
	stored.WantLineage(t, "pruned as a whole", catalog.Lineages[0], "", "")
	gaps = catalog.Gaps()
	if len(gaps) > 0 {
		t.Errorf("gaps %+v where all before is pruned", gaps)
	}
	for range 2 { // a tombstone below a higher one is removed after its segments
		_, err := c.Prune(t.Context(), repository.Removal{}, pruneOptions(2*stored.Grace), nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	got := slices.DeleteFunc(stored.Keys(t, b), func(key string) bool { return !strings.HasPrefix(key, "c/log/"+stored.LineageID(0)) })
	if !slices.Equal(got, []string{logTombstoneKey(stored.LineageID(0), 40)}) {
		t.Errorf("left is %q", got)
	}
	catalog = stored.Load(t, c, backups.LoadOptions{Log: true})
	gaps = catalog.Gaps()
	if len(gaps) > 0 || len(catalog.Lineages) != 2 {
		t.Errorf("gaps %+v, lineages %+v", gaps, catalog.Lineages)
	}
	tail, err := c.Log().Tail(t.Context())
	if err != nil || tail.Lineage != stored.LineageID(1) || tail.Last.Seq != 1 || tail.Broken != nil {
		t.Errorf("an archiver finds %+v, %v", tail, err)
	}
}

// TestPruneAgainstTheClock checks that a later tombstone does not restart the grace of segments that an earlier one deletes.
func TestPruneAgainstTheClock(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	fill(t, c)
	prune := func(upto uint64) {
		t.Helper()
		err := c.Log().Delete(t.Context(), removal(upto).Log[0])
		if err != nil {
			t.Fatal(err)
		}
	}
	prune(5)
	time.Sleep(2 * time.Millisecond) // the store has the real clock
	prune(15)
	first, err := b.Stat(t.Context(), logTombstoneKey(stored.LineageID(0), 5))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leftovers(t, c) {
		early := l.Key <= stored.SegmentKey("c", stored.LineageID(0), 5)
		if l.Since.Equal(first.ModTime) != early {
			t.Errorf("%s is left since %s, the first tombstone is of %s", l.Key, l.Since, first.ModTime)
		}
	}
}

// TestForgedLogTombstone checks that a tombstone that no trusted key has signed, or that was signed for another place, prunes
// nothing and is named.
func TestForgedLogTombstone(t *testing.T) {
	owner, attacker := stored.NewSigner(t), stored.NewSigner(t)
	trusting := stored.Trust(t, owner.Public)
	trusting.Key = owner.Key
	for name, policy := range map[string]records.Policy{"trust": trusting, "a signer": {Key: owner.Key}} {
		t.Run(name, func(t *testing.T) {
			b := mem.New()
			c := stored.OpenWith(t, b, policy)
			fill(t, c)
			forger := stored.OpenWith(t, b, records.Policy{Key: attacker.Key})
			for _, upto := range []uint64{12, 1 << 40} {
				err := forger.Log().Delete(t.Context(), removal(upto).Log[0])
				if err != nil {
					t.Fatal(err)
				}
			}
			err := c.Log().Delete(t.Context(), removal(3).Log[0])
			if err != nil {
				t.Fatal(err)
			}
			stored.Put(t, b, logTombstoneKey(stored.LineageID(1), 3), stored.Get(t, b, logTombstoneKey(stored.LineageID(0), 3)))
			stored.Put(t, b, logTombstoneKey(stored.LineageID(0), 7), stored.Get(t, b, logTombstoneKey(stored.LineageID(0), 3)))
			lineages := stored.LoadLog(t, c, 2)
			stored.WantLineage(t, "the forged", lineages[0], "4-40", "0 damaged 0 damaged 0 damaged")
			stored.WantLineage(t, "the moved", lineages[1], "1-1", "0 damaged")
			for _, f := range lineages[0].Faults {
				moved := f.Key == logTombstoneKey(stored.LineageID(0), 7)
				if errors.Is(f.Err, sign.ErrUntrusted) == moved {
					t.Errorf("%s: %v", f.Key, f.Err)
				}
			}
			swept, err := c.Sweep(t.Context(), stored.Grace, time.Now().Add(2*stored.Grace))
			if err != nil || len(swept) != 3 {
				t.Errorf("swept %q, %v, want the three that the owner has pruned", leftoverKeys(swept), err)
			}
			gaps := stored.Load(t, c, backups.LoadOptions{Log: true}).Gaps()
			if len(gaps) != 1 {
				t.Errorf("gaps %+v", gaps)
			}
		})
	}
}

// TestPruneTakenName checks that a prune names a forged tombstone that has the name of its own.
func TestPruneTakenName(t *testing.T) {
	b, owner := mem.New(), stored.NewSigner(t)
	c := stored.OpenWith(t, b, records.Policy{Key: owner.Key})
	fill(t, c)
	err := stored.OpenForger(t, b).Log().Delete(t.Context(), removal(25).Log[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Prune(t.Context(), removal(25), pruneOptions(0), nil)
	if !errors.Is(err, sign.ErrUntrusted) || !strings.Contains(err.Error(), logTombstoneKey(stored.LineageID(0), 25)) {
		t.Errorf("error %v", err)
	}
	for _, t0 := range []log.Tombstone{{Lineage: "x", Upto: 1}, {Lineage: stored.LineageID(0)}} {
		err := c.Log().Delete(t.Context(), t0)
		if err == nil {
			t.Errorf("%+v is stored", t0)
		}
	}
}

// TestPruneLocked checks that a locked backup stays listed, and that locked objects of the pruned log stay in the store.
func TestPruneLocked(t *testing.T) {
	b := mem.New()
	locked := stored.OpenWith(t, b, records.Policy{Lock: records.Lock{For: time.Hour}})
	fill(t, locked)
	c := stored.OpenCluster(t, b, "c")
	before := stored.Keys(t, b)
	result, err := c.Prune(t.Context(), removal(25), pruneOptions(0), nil)
	if err != nil || len(result.Deleted) > 0 || len(result.Locked) != 3 {
		t.Fatalf("%+v, %v", result, err)
	}
	for i, l := range result.Locked {
		until := time.Until(l.Until)
		if l.Backup != stored.IDAt(i) || until < 50*time.Minute || until > time.Hour || !strings.HasPrefix(l.Key, stored.Folder("c", stored.IDAt(i))) {
			t.Errorf("locked %+v", l)
		}
	}
	got := len(stored.Load(t, c, backups.LoadOptions{}).Backups)
	if got != 5 {
		t.Errorf("%d backups are listed", got)
	}
	o := pruneOptions(0)
	o.Grace = 0
	o.Now = o.Now.Add(time.Second)
	result, err = c.Prune(t.Context(), repository.Removal{}, o, nil)
	if err != nil || len(result.Swept) > 0 || len(result.Locked) != 27 {
		t.Fatalf("%d swept, %d locked, %v", len(result.Swept), len(result.Locked), err)
	}
	for _, l := range result.Locked {
		if l.Backup != "" || time.Until(l.Until) < 50*time.Minute {
			t.Errorf("locked %+v", l)
		}
	}
	got = len(stored.Keys(t, b))
	if got != len(before)+2 { // the tombstone, and the object that StoreTime writes
		t.Errorf("%d objects, there were %d", got, len(before))
	}
}

// TestPruneLegalHold checks that a backup whose manifest is under a legal hold counts as deleted: its tombstone is stored, and only
// its objects stay.
func TestPruneLegalHold(t *testing.T) {
	below := mem.New()
	b := storagetest.Faulty(below)
	c := stored.OpenCluster(t, b, "c")
	fill(t, c)
	b.On(storagetest.VerbDelete).Nth(1).Fail(storage.ErrLocked)
	r := repository.Removal{Backups: removal(25).Backups}
	result, err := c.Prune(t.Context(), r, pruneOptions(0), nil)
	if err != nil || !slices.Equal(result.Deleted, []catalog.ID{stored.IDAt(0), stored.IDAt(1), stored.IDAt(2)}) {
		t.Errorf("deleted %q, %v, want the first three backups", result.Deleted, err)
	}
	want := []repository.Locked{{Key: stored.Folder("c", stored.IDAt(0)) + "manifest.json"}}
	if !slices.Equal(result.Locked, want) {
		t.Errorf("locked %+v, want %+v", result.Locked, want)
	}
	stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), []catalog.ID{stored.IDAt(4), stored.IDAt(3)}, nil)
}

// TestPruneDryRunLocked checks that a dry run names the same objects as the run: locked ones, and a tombstone that stays as long
// as an object of its backup is locked, are not swept.
func TestPruneDryRunLocked(t *testing.T) {
	b := mem.New()
	locking := stored.OpenWith(t, b, records.Policy{Lock: records.Lock{For: time.Hour}})
	fill(t, locking)
	c := stored.OpenCluster(t, b, "c")
	r := removal(25)
	r.Backups = nil
	for _, n := range []int{7, 8} {
		stored.Create(t, c, stored.IDAt(n))
		r.Backups = append(r.Backups, catalog.Tombstone{Backup: stored.IDAt(n), Reason: "too old", Time: stored.Noon, By: "test"})
	}
	stored.AppendProof(t, locking, stored.ProofOf(stored.IDAt(7), catalog.Hashed, catalog.Passed, 1))
	result, err := c.Prune(t.Context(), r, pruneOptions(0), nil)
	if err != nil || len(result.Deleted) != 2 {
		t.Fatalf("%+v, %v", result, err)
	}
	o := repository.PruneOptions{Now: time.Now().Add(time.Second), DryRun: true}
	dry, err := c.Prune(t.Context(), repository.Removal{}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.DryRun = false
	run, err := c.Prune(t.Context(), repository.Removal{}, o, nil)
	if err != nil || len(run.Swept) != 3 || len(run.Locked) != 28 { // the data of both and a tombstone; a proof and the log
		t.Fatalf("%d swept, %d locked, %v", len(run.Swept), len(run.Locked), err)
	}
	diff := cmp.Diff(run, dry)
	if diff != "" {
		t.Errorf("the dry run differs from the run: %s", diff)
	}
}

// onPut is a Bucket that calls a function before or after the Put of a key that contains a text.
type onPut struct {
	storage.Bucket
	text string
	do   func()
}

func (p *onPut) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	obj, err := p.Bucket.Put(ctx, key, r, o)
	if strings.Contains(key, p.text) && p.do != nil {
		do := p.do
		p.do = nil
		do()
	}
	return obj, err
}

// TestPruneCancelled checks that Prune returns when its context has ended.
func TestPruneCancelled(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	fill(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Prune(ctx, removal(25), pruneOptions(0), nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	wantWhole(t, b)
}

// TestCopyAfterPrune checks that a copy does not restore the log that was pruned at the target, and does not delete a backup
// that is pinned there.
func TestCopyAfterPrune(t *testing.T) {
	source, target := mem.New(), mem.New()
	from, to := stored.OpenCluster(t, source, "c"), stored.OpenCluster(t, target, "c")
	fill(t, from)
	stored.MustCopy(t, from, to, copying.Options{})
	_, err := to.Pin(t.Context(), catalog.Pin{Backup: stored.IDAt(0), Time: stored.Noon})
	if err != nil {
		t.Fatal(err)
	}
	err = from.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(0), Time: stored.Noon})
	if err != nil {
		t.Fatal(err)
	}
	err = to.Log().Delete(t.Context(), removal(25).Log[0])
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		before := stored.Contents(t, target)
		result := stored.MustCopy(t, from, to, copying.Options{})
		diff := cmp.Diff(before, stored.Contents(t, target))
		if diff != "" || result.LeftOut != 26 || len(result.Faults) > 0 {
			t.Errorf("%+v\n%s", result, diff)
		}
		_, err := to.Sweep(t.Context(), stored.Grace, time.Now().Add(2*stored.Grace))
		if err != nil {
			t.Fatal(err)
		}
	}
	// The other way: segments that the source has pruned are not missing.
	back := mem.New()
	result := stored.MustCopy(t, to, stored.OpenCluster(t, back, "c"), copying.Options{})
	if len(result.Faults) > 0 || result.Segments != 16 {
		t.Errorf("%+v", result)
	}
	stored.WantLineage(t, "the copy", stored.LoadLog(t, stored.OpenCluster(t, back, "c"), 2)[0], "26-40", "")
}
