package copying_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/copying"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestCopySince checks that a copy has the backups and segments since a time, and the older ones that a restore of them needs.
func TestCopySince(t *testing.T) {
	source := mem.New()
	from := stored.OpenCluster(t, source, "c")
	var ids []catalog.ID
	for n, position := range []uint64{5, 25, 45} { // in segments 1, 3 and 5
		m := stored.ManifestOf(stored.Content, stored.At(10*n+1))
		m.RaftIndex, m.RaftIndexMax, m.RaftTerm = position, position, 2
		id := catalog.NewID(m.Started, 1000)
		_, err := stored.TryCreate(t, from, id, m)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	w := stored.NewWriter(t, "c", stored.LineageID(1))
	var all []string
	for n := range 8 { // they begin at seconds 0, 5, 10 to 35
		e := w.Next(func(h *segment.Header) {
			h.Written, h.Marks, h.End.Term = stored.At(5*n+2), []segment.Mark{stored.MarkAt(h.Last, 5*n)}, 2
		})
		stored.StoreSegments(t, from, e)
		all = append(all, stored.SegmentKey("c", stored.LineageID(1), uint64(n+1)))
	}
	written := stored.Load(t, from, backups.LoadOptions{Log: true}).Lineages[0].Segments
	stored.StoreIndex(t, from, written[:4])
	stored.StoreIndex(t, from, written[4:])
	for _, test := range []struct {
		since    time.Time
		backups  []catalog.ID // ascending
		segments []string
		indexes  []uint64
	}{
		{time.Time{}, ids, all, []uint64{1, 5}},
		{stored.At(0), ids, all, []uint64{1, 5}},
		{stored.At(9), ids, all, []uint64{1, 5}},       // the segment of second 10 begins at position 21 and needs the first backup
		{stored.At(12), ids[1:], all[2:], []uint64{5}}, // that of second 15 begins at 31 and needs the second, which is kept anyway
		{stored.At(22), ids[2:], all[4:], []uint64{5}}, // that of second 25 begins at 51 and needs the third
		{stored.At(30), ids[2:], all[4:], []uint64{5}}, // the third began before second 30
		{stored.At(36), nil, nil, nil},
	} {
		target := mem.New()
		result := stored.MustCopy(t, from, stored.OpenCluster(t, target, "c"), copying.Options{Since: test.since})
		wantFaults(t, test.since.String(), result, nil)
		var want []string
		for _, id := range test.backups {
			want = append(want, stored.Folder("c", id)+"manifest.json", stored.Folder("c", id)+stored.PlainName)
		}
		want = append(want, test.segments...)
		for _, first := range test.indexes {
			want = append(want, stored.IndexKey("c", stored.LineageID(1), first))
		}
		diff := cmp.Diff(want, stored.Keys(t, target))
		if diff != "" {
			t.Errorf("since %s (-want +got):\n%s", test.since, diff)
		}
		left := len(ids) + len(all) - len(test.backups) - len(test.segments)
		if result.LeftOut != left {
			t.Errorf("since %s: %d were left out, want %d", test.since, result.LeftOut, left)
		}
		catalog := stored.Load(t, stored.OpenCluster(t, target, "c"), backups.LoadOptions{Log: true})
		for _, l := range catalog.Lineages {
			stored.WantLineage(t, test.since.String(), l, fmt.Sprintf("%d-8", 9-len(test.segments)), "")
		}
		windows := catalog.Windows()
		if len(test.segments) > 0 && len(windows) != 1 {
			t.Errorf("since %s: windows %+v", test.since, windows)
		}
		stored.MustCopy(t, from, stored.OpenCluster(t, target, "c"), copying.Options{}) // copies the rest
		wantCopied(t, "later", source, target)
	}
}

// TestCopyOfAnyLog copies random histories with holes and gaps since random times. The objects of the target must be a subset
// of the source's, and every window of the source that ends after that time must be a window of the target.
func TestCopyOfAnyLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		source, target := mem.New(), mem.New()
		from := stored.OpenCluster(t, source, "c")
		w := stored.NewWriter(t, "c", stored.LineageID(1))
		for n := range rapid.IntRange(1, 12).Draw(rt, "segments") {
			e := w.Next(func(h *segment.Header) { h.End.Term = 2 })
			if rapid.IntRange(0, 5).Draw(rt, "lost") > 0 {
				stored.StoreSegments(t, from, e)
			}
			if rapid.IntRange(0, 3).Draw(rt, "backup") == 0 {
				m := stored.ManifestOf(stored.Content, stored.At(n+1))
				m.RaftIndex, m.RaftIndexMax, m.RaftTerm = e.Header.Last-3, e.Header.Last-1, 2
				_, err := stored.TryCreate(t, from, catalog.NewID(m.Started, int64(n+1)), m)
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		since := stored.At(rapid.IntRange(0, 13).Draw(rt, "since"))
		stored.MustCopy(t, from, stored.OpenCluster(t, target, "c"), copying.Options{Since: since})
		have := stored.Load(t, from, backups.LoadOptions{Log: true})
		got := stored.Load(t, stored.OpenCluster(t, target, "c"), backups.LoadOptions{Log: true})
		all := copied(t, source)
		for key, content := range stored.Contents(t, target) {
			if all[key] != content {
				t.Errorf("%s is not the source's", key)
			}
		}
		windows := map[uint64]catalog.Window{} // by their last positions
		for _, w := range got.Windows() {
			windows[w.To.Position] = w
		}
		for _, w := range have.Windows() {
			if w.To.Time.Before(since.Add(time.Second)) {
				continue
			}
			// Before since, the window of the source may begin earlier.
			kept, ok := windows[w.To.Position]
			if !ok || kept.From.Time.After(storage.Later(since.Add(time.Second), w.From.Time)) {
				t.Errorf("since %s: window %+v, of %+v", since, kept, w)
			}
		}
	})
}

// withoutLog is a Bucket whose log must not be read.
type withoutLog struct {
	storage.Bucket
	t *testing.T
}

func (w withoutLog) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	if strings.HasPrefix(o.Prefix, "c/log/") {
		w.t.Errorf("%s is listed", o.Prefix)
	}
	return w.Bucket.List(ctx, o)
}

// A copy with BackupsOnly that is interrupted has copied the oldest backups: the target's newest one shows where the next
// copy begins.
func TestCopyOfBackupsBeginsWithTheOldest(t *testing.T) {
	target := storagetest.Faulty(mem.New())
	from, to := stored.OpenCluster(t, mem.New(), "c"), stored.OpenCluster(t, target, "c")
	for n := range 3 {
		stored.Create(t, from, stored.IDAt(n))
	}
	target.On(storagetest.VerbPut).Nth(3).Fail(stored.ErrTest)
	_, err := copying.Copy(t.Context(), from, to, copying.Options{BackupsOnly: true})
	copied := stored.Load(t, to, backups.LoadOptions{}).Backups
	if !errors.Is(err, stored.ErrTest) || len(copied) != 1 || copied[0].ID != stored.IDAt(0) {
		t.Errorf("error %v, copied %v", err, copied)
	}
}

// A copy with BackupsOnly, which a service repeats often, reads the log on neither side.
func TestCopyOfBackupsReadsNoLog(t *testing.T) {
	source, target := withoutLog{mem.New(), t}, withoutLog{mem.New(), t}
	from, to := stored.OpenCluster(t, source, "c"), stored.OpenCluster(t, target, "c")
	stored.StoreSegments(t, stored.OpenCluster(t, source.Bucket, "c"), stored.NewWriter(t, "c", stored.LineageID(1)).Some(3)...)
	stored.Create(t, from, stored.IDAt(0))
	stored.Create(t, from, stored.IDAt(1))
	result, err := copying.Copy(t.Context(), from, to, copying.Options{Since: stored.IDAt(1).Started(), BackupsOnly: true})
	if err != nil || result.Backups != 1 || result.Segments != 0 {
		t.Errorf("%+v, error %v", result, err)
	}
}
