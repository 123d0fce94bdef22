package s3

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/storage"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
)

// TestHistoryProperty checks, for random stores and deletions in different seconds and for every split into pages, that
// each version ends when the next event of its key begins.
func TestHistoryProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events, want := drawHistory(t)
		page := rapid.IntRange(1, 5).Draw(t, "page")
		var got []storage.ObjectVersion
		var rest []event
		for len(events) > 0 {
			n := min(page, len(events))
			var ready []event
			ready, rest = complete(append(rest, byKind(events[:n])...), len(events) > n)
			got = append(got, history(ready)...)
			events = events[n:]
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got  %v\nwant %v", got, want)
		}
	})
}

// byKind returns the page in the order of the SDK: first the versions, then the deletions.
func byKind(page []event) []event {
	page = slices.Clone(page)
	slices.SortStableFunc(page, func(a, b event) int { return cmp.Compare(boolRank(a.deleted), boolRank(b.deleted)) })
	return page
}

// drawHistory returns the events of some keys in S3's order, and the history that they mean.
func drawHistory(t *rapid.T) (events []event, want []storage.ObjectVersion) {
	for k := range rapid.IntRange(0, 4).Draw(t, "keys") {
		now := time.Unix(1000, 0).UTC()
		var mine []event
		for n := range rapid.IntRange(1, 5).Draw(t, "events") {
			// The order of events is visible only in different seconds.
			now = now.Add(time.Duration(rapid.IntRange(1, 3).Draw(t, "seconds")) * time.Second)
			e := event{deleted: rapid.Bool().Draw(t, "deleted")}
			e.kept.Key, e.kept.ModTime = fmt.Sprintf("key%d", k), now
			if !e.deleted {
				e.kept.Version = fmt.Sprintf("v:%d", n)
			}
			mine = append(mine, e)
		}
		mine[len(mine)-1].latest = true
		slices.Reverse(mine)
		for i, e := range mine {
			if !e.deleted {
				if i > 0 {
					e.kept.Until = mine[i-1].kept.ModTime
				}
				want = append(want, e.kept)
			}
		}
		events = append(events, mine...)
	}
	return events, want
}

// TestHistoryWithinASecond checks that a version which was replaced or deleted within its first second never existed,
// and that this leaves the versions before and after it unchanged.
func TestHistoryWithinASecond(t *testing.T) {
	at := time.Unix(1000, 0).UTC()
	kept := func(version string, after time.Duration) event {
		return event{kept: storage.ObjectVersion{Object: storage.Object{Key: "key", Version: version, ModTime: at.Add(after)}}}
	}
	marker := kept("", 10*time.Second)
	marker.deleted, marker.latest = true, true
	got := history([]event{kept("2", 10*time.Second), kept("1", 0), marker})
	for i, want := range []storage.ObjectVersion{
		{Object: kept("2", 10*time.Second).kept.Object, Until: at.Add(10 * time.Second)},
		{Object: kept("1", 0).kept.Object, Until: at.Add(10 * time.Second)},
	} {
		if got[i] != want {
			t.Errorf("%v, want %v", got[i], want)
		}
	}
}

func FuzzContentRange(f *testing.F) {
	for _, text := range []string{
		"bytes 0-9/10", "bytes 10-19/100", "bytes */10", "bytes 5-9/*", "", "bytes 9-5/3", "bytes -1-2/5",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		first, size, ok := contentRange(text)
		if ok && (first < 0 || first >= size) {
			t.Errorf("%q gives byte %d of %d", text, first, size)
		}
	})
}

func FuzzPinned(f *testing.F) {
	for _, version := range []string{"", "v:1", `e:"0"`, `n:"0"`, "x", "v:"} {
		f.Add(version)
	}
	f.Fuzz(func(t *testing.T, version string) {
		p, ok := parseVersion(version)
		if !ok {
			return
		}
		back := ""
		switch {
		case p.id != nil && p.etag != nil:
			back = byNull + *p.etag
		case p.id != nil:
			back = byID + *p.id
		case p.etag != nil:
			back = byETag + *p.etag
		}
		if back != version {
			t.Errorf("%q pins %q", version, back)
		}
	})
}
