package find

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/restore/replay"
)

// end returns the deletion of keys keys at a revision, seconds after a fixed time.
func end(revision int64, seconds int, keys int) Gone {
	at := time.Date(2026, 11, 21, 9, 0, seconds, 0, time.UTC)
	return Gone{Change: Change{
		Key: "/registry/a", Deleted: true, Revision: revision, Lineage: "l", NotBefore: at.Add(-time.Second), NotAfter: at,
		Request: replay.ByTxn,
	}, Vanished: keys}
}

func TestVanishedTogether(t *testing.T) {
	expired := end(60, 700, 9)
	expired.Request = replay.ByLease
	elsewhere := end(95, 990, 1)
	elsewhere.Lineage = "before"
	mark := &Change{Revision: 40, Lineage: "l"}
	for name, test := range map[string]struct {
		gone []Gone
		mark *Change
		want *Vanished
	}{
		"nothing":             {nil, nil, nil},
		"leases alone":        {[]Gone{expired}, nil, nil},
		"one end":             {[]Gone{end(50, 600, 3)}, nil, &Vanished{Keys: 3, From: 50, To: 50, LastWhole: 49}},
		"one after the other": {[]Gone{end(50, 600, 3), end(51, 601, 1), expired, end(70, 800, 1)}, nil, &Vanished{Keys: 5, From: 50, To: 70, LastWhole: 49}},
		"long before":         {[]Gone{end(20, 100, 7), end(70, 800, 1)}, nil, &Vanished{Keys: 1, From: 70, To: 70, LastWhole: 69, Earlier: 7}},
		"since the mark":      {[]Gone{end(20, 100, 7), end(50, 110, 1), end(70, 8000, 1)}, mark, &Vanished{Keys: 2, From: 50, To: 70, LastWhole: 39, Earlier: 7, Mark: mark}},
		"another history":     {[]Gone{elsewhere, end(100, 1000, 1)}, nil, &Vanished{Keys: 1, From: 100, To: 100, LastWhole: 99, Earlier: 1}},
		"an older mark's":     {[]Gone{end(30, 600, 2)}, mark, &Vanished{Keys: 2, From: 30, To: 30, LastWhole: 29}},
	} {
		t.Run(name, func(t *testing.T) {
			got := vanished(marked(test.gone, test.mark))
			if got != nil {
				first := got.From
				for _, g := range test.gone {
					if g.Revision == first && !got.NotBefore.Equal(g.NotBefore) {
						t.Errorf("not before %v, want %v", got.NotBefore, g.NotBefore)
					}
				}
				got.NotBefore, got.NotAfter = time.Time{}, time.Time{}
				test.want.Lineage = "l"
			}
			diff := cmp.Diff(test.want, got)
			if diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// marked returns gone, with the mark of all deletions after it.
func marked(gone []Gone, mark *Change) []Gone {
	for i, g := range gone {
		if mark != nil && g.Revision > mark.Revision {
			gone[i].Mark = mark
		}
	}
	return gone
}

func add(t *tracked, c Change) {
	t.note(c, c)
	t.add(c, true)
}

// A namespace that is created and deleted again was marked by the later change.
func TestLastMark(t *testing.T) {
	tracked := newTracked()
	namespace := func(revision int64, marked, deleted bool) Change {
		return Change{Key: "/registry/namespaces/prod", Revision: revision, Deleting: marked, Deleted: deleted}
	}
	for _, c := range []Change{
		namespace(10, false, false), namespace(20, true, false), namespace(21, true, false), namespace(30, false, true),
	} {
		add(tracked, c)
	}
	gone := tracked.gone["/registry/namespaces/prod"]
	if gone.mark == nil || gone.mark.Revision != 20 {
		t.Fatalf("marked by %+v, want revision 20", gone.mark)
	}
	for _, c := range []Change{namespace(40, false, false), namespace(50, true, false), namespace(55, false, true)} {
		add(tracked, c)
	}
	gone = tracked.gone["/registry/namespaces/prod"]
	if gone.mark == nil || gone.mark.Revision != 50 {
		t.Errorf("marked by %+v, want revision 50", gone.mark)
	}
}

// TestWatchedRange checks that a search for a range of Kubernetes' keys also reads the namespaces, and no other search does.
func TestWatchedRange(t *testing.T) {
	namespace := []byte("/registry/namespaces/prod")
	for prefix, want := range map[string]bool{
		"/registry/configmaps/prod/": true, "/registry/secrets/": true, "/registry/": true, "/": true, "": true, "/registry/namespaces/p": true, "app/": false,
	} {
		keys := Prefix(prefix)
		if keys.watches(namespace) != want || want && !keys.watched().Has(namespace) {
			t.Errorf("prefix %q: watches the namespace: %v, range %q", prefix, keys.watches(namespace), keys.watched())
		}
		inside := append([]byte(prefix), "zzz"...)
		if !keys.watches(inside) || !keys.watched().Has(inside) {
			t.Errorf("prefix %q: does not watch %q", prefix, inside)
		}
	}
	if Key("/registry/configmaps/prod/a").watches(namespace) {
		t.Error("a search for one key watches its namespace")
	}
}
