package copying_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/copying"
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// fullRepository returns a repository with backups and proofs, a deleted and a killed backup, a lease, and a log of two
// lineages with an index.
func fullRepository(tb testing.TB, b storage.Bucket, p records.Policy) *repository.Cluster {
	tb.Helper()
	c := stored.OpenWith(tb, b, p)
	for n := range 4 {
		stored.Create(tb, c, stored.IDAt(n))
	}
	stored.AppendProof(tb, c, stored.ProofOf(stored.IDAt(0), catalog.Hashed, catalog.Passed, 1))
	stored.AppendProof(tb, c, stored.ProofOf(stored.IDAt(0), catalog.Opened, catalog.Passed, 2))
	gone := catalog.Tombstone{Backup: stored.IDAt(2), Reason: "too old", Time: stored.Noon, By: "test"}
	err := c.Delete(tb.Context(), gone)
	if err != nil {
		tb.Fatal(err)
	}
	stored.Put(tb, b, stored.Folder("c", stored.IDAt(9))+stored.PlainName, stored.Content)
	_, _, err = c.Leases().Acquire(tb.Context(), "archive", "me", lease.Term{TTL: time.Minute, Now: stored.Noon})
	if err != nil {
		tb.Fatal(err)
	}
	first := stored.Keyed(stored.NewWriter(tb, "c", stored.LineageID(1)), p.Key).Some(6)
	stored.StoreSegments(tb, c, first...)
	stored.StoreIndex(tb, c, stored.SegmentsOf(first[:4]))
	second := stored.Keyed(stored.NewWriter(tb, "c", stored.LineageID(2)), p.Key)
	stored.StoreSegments(tb, c, second.Next(func(h *segment.Header) { h.Written = stored.At(100) }), second.Next())
	return c
}

// isCopied reports whether a copy of fullRepository contains key.
func isCopied(key string) bool {
	killed := strings.HasPrefix(key, stored.Folder("c", stored.IDAt(9)))
	deleted := strings.HasPrefix(key, stored.Folder("c", stored.IDAt(2)))
	return !killed && !deleted && !strings.Contains(key, "/leases/") && !strings.HasPrefix(key, "c/repository")
}

// copied returns the objects of the source that the target must have.
func copied(tb testing.TB, source storage.Bucket) map[string]string {
	tb.Helper()
	all := stored.Contents(tb, source)
	maps.DeleteFunc(all, func(key, _ string) bool { return !isCopied(key) })
	return all
}

func wantCopied(tb testing.TB, what string, source, target storage.Bucket) {
	tb.Helper()
	diff := cmp.Diff(copied(tb, source), stored.Contents(tb, target))
	if diff != "" {
		tb.Errorf("%s: the target differs from the source (-want +got):\n%s", what, diff)
	}
}

// wantFaults fails unless the faults have exactly these keys, and each error names its key and matches the wanted one.
func wantFaults(tb testing.TB, what string, r copying.Result, want map[string]error) {
	tb.Helper()
	got := map[string]bool{}
	for _, f := range r.Faults {
		got[f.Key] = true
		if want[f.Key] == nil || !errors.Is(f.Err, want[f.Key]) || !strings.Contains(f.Err.Error(), f.Key) {
			tb.Errorf("%s: fault of %s: %v, want %v", what, f.Key, f.Err, want[f.Key])
		}
	}
	if len(got) != len(want) {
		tb.Errorf("%s: faults of %v, want %v", what, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

func TestCopy(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, source storage.Bucket) {
		from := fullRepository(t, source, records.Policy{})
		target := mem.New()
		to := stored.OpenCluster(t, target, "c")
		var done, total int64
		report := func(e storage.Event) {
			if e.Done < done || e.Stage == "copy" && e.Total == 0 {
				t.Errorf("after %d bytes: %+v", done, e)
			}
			done, total = e.Done, e.Total
		}
		result, err := copying.Copy(t.Context(), from, to, copying.Options{Report: report})
		if err != nil {
			t.Fatal(err)
		}
		wantCopied(t, "once", source, target)
		var bytes int64
		for _, object := range copied(t, source) {
			bytes += int64(len(object))
		}
		want := copying.Result{Backups: 3, Segments: 8, Objects: len(copied(t, source)), Bytes: bytes, LeftOut: 1}
		diff := cmp.Diff(want, result)
		if diff != "" || done != bytes || total != bytes {
			t.Errorf("%d of %d bytes reported (-want +got):\n%s", done, total, diff)
		}
		proven := backups.LoadOptions{Proofs: true}
		diff = cmp.Diff(stored.Load(t, from, proven), stored.Load(t, to, proven))
		if diff != "" {
			t.Errorf("the catalogs differ:\n%s", diff)
		}
		again := stored.MustCopy(t, from, to, copying.Options{})
		diff = cmp.Diff(copying.Result{Present: want.Objects, LeftOut: 1}, again)
		if diff != "" {
			t.Errorf("the second time (-want +got):\n%s", diff)
		}
		stored.AppendProof(t, from, stored.ProofOf(stored.IDAt(1), catalog.Hashed, catalog.Failed, 3))
		more := stored.MustCopy(t, from, to, copying.Options{})
		if more.Objects != 1 || more.Present != want.Objects {
			t.Errorf("a new proof: %+v", more)
		}
		wantCopied(t, "with another proof", source, target)
	})
}

func TestCopyRefusesAnotherName(t *testing.T) {
	b := mem.New()
	_, err := copying.Copy(t.Context(), stored.OpenCluster(t, b, "c"), stored.OpenCluster(t, b, "d"), copying.Options{})
	stored.WantError(t, "c to d", err, catalog.ErrName)
}

// TestCopyInterrupted ends a copy at each call to either store: before the call has an effect, in the middle of its stream, and
// with its answer lost. Everything that is listed then must be whole, and a repeated copy must equal the source.
func TestCopyInterrupted(t *testing.T) {
	source := mem.New()
	fullRepository(t, source, records.Policy{})
	breaks := map[string]func(*storagetest.Fault){
		"before": func(f *storagetest.Fault) { f.Fail(stored.ErrTest) },
		"after":  func(f *storagetest.Fault) { f.FailLate(stored.ErrTest) },
		"within": func(f *storagetest.Fault) { f.Cut(10, stored.ErrTest) },
	}
	for name, arm := range breaks {
		for _, verb := range []storagetest.Verb{storagetest.VerbPut, storagetest.VerbOpen, storagetest.VerbList} {
			for _, atSource := range []bool{true, false} {
				ended := 0
				for call, met := 1, true; met; call++ {
					what := fmt.Sprint(verb, " ", name, " call ", call, " at the source ", atSource)
					target := mem.New()
					faultyFrom, faultyTo := storagetest.Faulty(source), storagetest.Faulty(target)
					faulty := faultyTo
					if atSource {
						faulty = faultyFrom
					}
					arm(faulty.On(verb).Nth(call))
					from, to := stored.OpenCluster(t, faultyFrom, "c"), stored.OpenCluster(t, faultyTo, "c")
					_, err := copying.Copy(t.Context(), from, to, copying.Options{})
					met = faulty.Calls(verb) >= call
					if err != nil {
						ended++
						stored.WantError(t, what, err, stored.ErrTest)
					}
					wantWholeSoFar(t, what, target)
					from, to = stored.OpenCluster(t, source, "c"), stored.OpenCluster(t, target, "c")
					result := stored.MustCopy(t, from, to, copying.Options{})
					wantFaults(t, what, result, nil)
					wantCopied(t, what, source, target)
				}
				if verb != storagetest.VerbPut && ended == 0 && atSource {
					t.Errorf("%s %s: no copy was interrupted", verb, name)
				}
			}
		}
	}
}

// wantWholeSoFar fails if anything that target lists is damaged.
func wantWholeSoFar(t *testing.T, what string, target storage.Bucket) {
	t.Helper()
	c := stored.OpenCluster(t, target, "c")
	catalog := stored.Load(t, c, backups.LoadOptions{Log: true})
	if len(catalog.Damaged) > 0 {
		t.Errorf("%s: listed is %v", what, catalog.Damaged[0].Err)
	}
	for _, b := range catalog.Backups {
		stored.WantContent(t, c, b)
	}
	for _, l := range catalog.Lineages {
		if len(l.Faults) > 0 || len(l.Stretches()) > 1 {
			t.Errorf("%s: the log has %s", what, stored.FaultsOf(t, l))
		}
	}
}

// TestCopyDamaged damages each object of the source in turn. It must be reported and not copied, and everything else copied.
func TestCopyDamaged(t *testing.T) {
	whole := mem.New()
	fullRepository(t, whole, records.Policy{})
	lost := func(key string) []string { // key, and the objects that cannot be copied without it
		switch {
		case strings.HasSuffix(key, "manifest.json") || strings.HasSuffix(key, stored.PlainName):
			return slices.DeleteFunc(slices.Collect(maps.Keys(copied(t, whole))), func(k string) bool {
				return !strings.HasPrefix(k, key[:strings.LastIndex(key, "/")])
			})
		case strings.HasSuffix(key, ".seg") && key <= stored.SegmentKey("c", stored.LineageID(1), 4):
			return []string{key, stored.IndexKey("c", stored.LineageID(1), 1)}
		}
		return []string{key}
	}
	for key := range copied(t, whole) {
		for name, damage := range map[string]func([]byte) []byte{
			"flipped": func(p []byte) []byte { p[len(p)*2/3] ^= 1; return p },
			"cut":     func(p []byte) []byte { return p[:len(p)/2] },
			"longer":  func(p []byte) []byte { return append(p, 0) },
		} {
			what := name + " " + key
			source, target := mem.New(), mem.New()
			for k, p := range stored.Contents(t, whole) {
				stored.Put(t, source, k, []byte(p))
			}
			stored.Change(t, source, key, damage)
			want := copied(t, whole)
			for _, k := range lost(key) {
				delete(want, k)
			}
			result := stored.MustCopy(t, stored.OpenCluster(t, source, "c"), stored.OpenCluster(t, target, "c"), copying.Options{})
			diff := cmp.Diff(want, stored.Contents(t, target))
			if diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
			if len(result.Faults) != 1 || !errors.Is(result.Faults[0].Err, catalog.ErrDamaged) ||
				!strings.Contains(result.Faults[0].Err.Error(), key) {
				t.Errorf("%s: faults %+v", what, result.Faults)
			}
		}
	}
}

// TestCopyOntoAnother stores different content at the target under the key of each object of the source. It must be named and
// left unchanged, and everything that does not need it must be copied.
func TestCopyOntoAnother(t *testing.T) {
	source := mem.New()
	from := fullRepository(t, source, records.Policy{})
	for key, good := range copied(t, source) {
		for name, other := range map[string][]byte{
			"of another size": []byte(good + "x"), "of the same size": stored.Flip(len(good)*2/3, 1)([]byte(good)),
		} {
			if strings.Contains(key, "index-") && name == "of the same size" {
				continue // an index is compared by its size alone
			}
			if strings.HasSuffix(key, ".seg") && name == "of the same size" {
				other = stored.Flip(len(good)/3, 1)([]byte(good)) // within its header: bodies are compared by size alone
			}
			what := key + " " + name
			target := mem.New()
			stored.Put(t, target, key, other)
			result := stored.MustCopy(t, from, stored.OpenCluster(t, target, "c"), copying.Options{})
			wantFaults(t, what, result, map[string]error{key: copying.ErrDiffers})
			if !bytes.Equal(stored.Get(t, target, key), other) {
				t.Errorf("%s was overwritten", what)
			}
			for _, b := range stored.Load(t, stored.OpenCluster(t, target, "c"), backups.LoadOptions{}).Backups {
				stored.WantContent(t, stored.OpenCluster(t, target, "c"), b)
			}
			want := len(copied(t, source)) - 1
			dependents := len(lostWith(t, key, source))
			if result.Objects != want-dependents {
				t.Errorf("%s: %d objects were copied, want %d", what, result.Objects, want-dependents)
			}
		}
	}
}

// lostWith returns the other objects that are not copied if the target has a different one under key.
func lostWith(t *testing.T, key string, source storage.Bucket) (others []string) {
	t.Helper()
	for k := range copied(t, source) {
		sameBackup := strings.HasPrefix(k, key[:strings.LastIndex(key, "/")+1]) && strings.Contains(k, "/backups/")
		listing := k == stored.IndexKey("c", stored.LineageID(1), 1) && key < k && key <= stored.SegmentKey("c", stored.LineageID(1), 4) &&
			strings.HasPrefix(key, "c/log/"+stored.LineageID(1))
		if k != key && (listing || sameBackup && !strings.Contains(key, "proof-")) {
			others = append(others, k)
		}
	}
	return others
}

// TestCopyOntoAnotherData checks that a copy detects different data of the same size that a killed backup left at the target
// without a manifest.
func TestCopyOntoAnotherData(t *testing.T) {
	source, target := mem.New(), mem.New()
	from := stored.OpenCluster(t, source, "c")
	stored.Create(t, from, stored.IDAt(0))
	key := stored.Folder("c", stored.IDAt(0)) + stored.PlainName
	stored.Put(t, target, key, stored.Flip(50, 1)(stored.Get(t, source, key)))
	result := stored.MustCopy(t, from, stored.OpenCluster(t, target, "c"), copying.Options{})
	wantFaults(t, "copy", result, map[string]error{key: copying.ErrDiffers})
	stored.WantIDs(t, stored.Load(t, stored.OpenCluster(t, target, "c"), backups.LoadOptions{}), nil, nil)
}

// TestCopyDeletedThere checks that a copy does not restore backups that are deleted at the target.
func TestCopyDeletedThere(t *testing.T) {
	source, target := mem.New(), mem.New()
	from, to := stored.OpenCluster(t, source, "c"), stored.OpenCluster(t, target, "c")
	stored.Create(t, from, stored.IDAt(0))
	stored.Create(t, from, stored.IDAt(1))
	stored.MustCopy(t, from, to, copying.Options{})
	for n, c := range []*repository.Cluster{from, to} { // one backup is deleted on both sides, at different times
		gone := catalog.Tombstone{Backup: stored.IDAt(0), Reason: "too old", Time: stored.At(n), By: "test"}
		err := c.Delete(t.Context(), gone)
		if err != nil {
			t.Fatal(err)
		}
	}
	err := to.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(1), Time: stored.Noon})
	if err != nil {
		t.Fatal(err)
	}
	before := stored.Contents(t, target)
	result := stored.MustCopy(t, from, to, copying.Options{})
	diff := cmp.Diff(before, stored.Contents(t, target))
	if diff != "" || result.LeftOut != 1 || len(result.Faults) > 0 {
		t.Errorf("%+v\n%s", result, diff)
	}
}

// TestCopyTrusted checks that signatures stay valid, and that untrusted objects are not copied.
func TestCopyTrusted(t *testing.T) {
	me := stored.NewSigner(t)
	source, target := mem.New(), mem.New()
	fullRepository(t, source, records.Policy{Key: me.Key})
	want := copied(t, source)

	forger := stored.OpenForger(t, source)
	stored.Create(t, forger, stored.IDAt(20))
	stored.AppendProof(t, forger, stored.ProofOf(stored.IDAt(1), catalog.Booted, catalog.Passed, 5))
	proof := slices.IndexFunc(stored.Keys(t, source), func(k string) bool {
		return want[k] == "" && strings.Contains(k, "proof-")
	})
	forgedProof := stored.Keys(t, source)[proof]
	tombstone := stored.Folder("c", stored.IDAt(1)) + stored.TombstoneName
	text, err := catalog.Tombstones.Encode(catalog.Tombstone{Format: 1, Backup: stored.IDAt(1), Time: stored.Noon})
	if err != nil {
		t.Fatal(err)
	}
	stored.Put(t, source, tombstone, text)
	stored.StoreSegments(t, forger, stored.NewWriter(t, "c", stored.LineageID(3)).Next())

	result := stored.MustCopy(t, stored.OpenWith(t, source, stored.Trust(t, me.Public)), stored.OpenCluster(t, target, "c"), copying.Options{})
	wantFaults(t, "copy", result, map[string]error{
		stored.Folder("c", stored.IDAt(20)) + "manifest.json": sign.ErrUntrusted, forgedProof: sign.ErrUntrusted, tombstone: sign.ErrUntrusted,
		stored.SegmentKey("c", stored.LineageID(3), 1): sign.ErrUntrusted,
	})
	diff := cmp.Diff(want, stored.Contents(t, target))
	if diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	trusted := stored.Load(t, stored.OpenWith(t, target, stored.Trust(t, me.Public)), backups.LoadOptions{Proofs: true, Log: true})
	if len(trusted.Backups) != 3 || len(trusted.Lineages) != 2 || len(trusted.Untrusted)+len(trusted.Ignored) > 0 {
		t.Errorf("the copy is trusted as %+v", trusted)
	}
}

// TestCopyCancelled checks that a cancelled copy leaves only whole backups.
func TestCopyCancelled(t *testing.T) {
	source, target := mem.New(), mem.New()
	from := fullRepository(t, source, records.Policy{})
	for n := 1; len(stored.Keys(t, target)) < len(copied(t, source)); n++ {
		ctx, cancel := context.WithCancel(t.Context())
		events := 0
		_, err := copying.Copy(ctx, from, stored.OpenCluster(t, target, "c"), copying.Options{Report: func(storage.Event) {
			events++
			if events == n {
				cancel()
			}
		}})
		cancel()
		if err != nil {
			stored.WantError(t, "copy", err, context.Canceled)
		}
		wantWholeSoFar(t, fmt.Sprint("cancelled at event ", n), target)
	}
	wantCopied(t, "at last", source, target)
}

// A forged tombstone at the target does not keep a backup from being copied, and is named.
func TestCopyPastForgedTombstones(t *testing.T) {
	owner := stored.NewSigner(t)
	source, target := mem.New(), mem.New()
	stored.Create(t, stored.OpenWith(t, source, records.Policy{Key: owner.Key}), stored.IDAt(0))
	forged, err := catalog.Tombstones.Encode(catalog.Tombstone{Format: catalog.Tombstones.Format, Backup: stored.IDAt(0), Time: stored.Noon})
	if err != nil {
		t.Fatal(err)
	}
	key := stored.Folder("c", stored.IDAt(0)) + stored.TombstoneName
	stored.Put(t, target, key, forged)
	policy := stored.Trust(t, owner.Public)
	result := stored.MustCopy(t, stored.OpenWith(t, source, policy), stored.OpenWith(t, target, policy), copying.Options{})
	if result.Backups != 1 || result.LeftOut != 0 {
		t.Errorf("%d backups were copied, %d left out", result.Backups, result.LeftOut)
	}
	if len(result.Faults) != 1 || result.Faults[0].Key != key || !errors.Is(result.Faults[0].Err, sign.ErrUntrusted) {
		t.Errorf("faults %+v", result.Faults)
	}
}

// The target of a signed copy has a marker of its own. An attacker who overwrites it with the source's marker makes the
// source's deletions count at the target: that cannot be prevented, but the next copy refuses.
func TestCopyRefusesTheSameID(t *testing.T) {
	owner := stored.NewSigner(t)
	p := records.Policy{Key: owner.Key}
	source, target := mem.New(), mem.New()
	from, to := stored.OpenWith(t, source, p), stored.OpenWith(t, target, p)
	stored.Create(t, from, stored.IDAt(0))
	stored.Create(t, from, stored.IDAt(1))
	stored.MustCopy(t, from, to, copying.Options{})
	err := from.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(0), Time: stored.Noon})
	if err != nil {
		t.Fatal(err)
	}
	marker := ""
	for _, key := range stored.Keys(t, source) {
		if strings.Contains(key, "/tombstone-") {
			stored.Put(t, target, key, stored.Get(t, source, key))
		}
		if strings.HasPrefix(key, "c/repository-") {
			marker = key
		}
	}
	stored.WantIDs(t, stored.Load(t, stored.OpenWith(t, target, p), backups.LoadOptions{}), []catalog.ID{stored.IDAt(1), stored.IDAt(0)}, nil)
	stored.MustCopy(t, from, stored.OpenWith(t, target, p), copying.Options{})

	own := stored.Get(t, target, marker)
	stored.Put(t, target, marker, stored.Get(t, source, marker))
	stored.WantIDs(t, stored.Load(t, stored.OpenWith(t, target, p), backups.LoadOptions{}), []catalog.ID{stored.IDAt(1)}, nil)
	_, err = copying.Copy(t.Context(), from, stored.OpenWith(t, target, p), copying.Options{})
	stored.WantError(t, "a copy to a repository with the source's id", err, records.ErrSameID)

	stored.Put(t, target, marker, own)
	stored.MustCopy(t, from, stored.OpenWith(t, target, p), copying.Options{})
	stored.WantIDs(t, stored.Load(t, stored.OpenWith(t, target, p), backups.LoadOptions{}), []catalog.ID{stored.IDAt(1), stored.IDAt(0)}, nil)
}
