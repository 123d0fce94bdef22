package find

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/find/kubernetes"
	"github.com/etcd-dr/etcd-dr/restore/plan"
)

// Summary is the result of a search.
type Summary struct {
	Changes int // number of reported changes
	Unseen  int // number of reported parts that the archive does not contain completely
	// Last is the last change of any of the keys, in the window or before it; nil if the keys never existed.
	Last *Change
	// Gone lists the deletions whose keys did not come back, by time. Only the newest 100,000 deleted keys are remembered;
	// Forgotten counts the others.
	Gone      []Gone
	Forgotten int
	// Vanished sums up the newest of these deletions that belong together; nil if there are none.
	Vanished *Vanished
	// Mark is the change that marked the only searched key, or the searched namespace, for deletion; nil if it is not marked
	// or does not exist.
	Mark *Change
}

// Gone is the deletion of some keys by one revision; the keys did not come back.
type Gone struct {
	Change       // of one of the keys
	Vanished int // number of keys
	// Mark is the change that had marked the key, or its namespace in a search for a range, for deletion; nil if there was none or it
	// is unknown. Before Mark everything that belongs to the object exists. Between Mark and Change it is deleted part by part.
	Mark *Change
	// Way leads to the state immediately before; nil if the archive has no state near it.
	Way *Way
}

// begin returns the change with which the deletion began.
func (g Gone) begin() Change {
	if g.Mark != nil {
		return *g.Mark
	}
	return g.Change
}

// LastGood returns the last revision at which the key certainly existed and was not marked for deletion.
func (g Gone) LastGood() int64 { return g.begin().LastGood() }

// LastGood returns the last revision at which the key certainly existed if c deleted it, or was not marked if c marked it.
func (c Change) LastGood() int64 {
	if c.After > 0 {
		return c.After
	}
	return c.Revision - 1
}

// Way is a target of dr restore.
type Way struct {
	Revision int64     // for --to-revision
	Lineage  string    // needed if there are several histories
	Exact    bool      // false: dr restore reaches only the nearest state, with --best
	Nearest  time.Time // latest time of the restored state; zero if unknown
	Reached  int64     // revision of the restored state; 0: only a replay can determine it
}

// maxRemembered is the largest number of deleted keys that are remembered, since each may come back.
const maxRemembered = 100_000

// tracked collects the data of the summary.
type tracked struct {
	changes, unseen, forgotten int

	last  *Change
	marks map[string]*mark    // by key, of objects that were marked for deletion and have not come back
	gone  map[string]deletion // by key; only of keys that have not come back
	order []deletion          // oldest first; includes some that are no longer in gone
}

// mark is a change that marked an object for deletion.
type mark struct {
	Change
	gone bool // the object was deleted since
}

type deletion struct {
	Change
	mark   *Change // the change that had marked the key, or its namespace, for deletion; nil: none, or unknown
	number int     // distinguishes deletions of one key
}

func newTracked() *tracked { return &tracked{marks: map[string]*mark{}, gone: map[string]deletion{}} }

// add adds a change. inside is whether it lies in the window.
func (t *tracked) add(c Change, inside bool) {
	t.last = &c
	d := deletion{Change: c, mark: t.markOf(c)}
	if inside {
		t.changes++
	}
	delete(t.gone, c.Key)
	if !c.Deleted || !inside {
		return
	}
	d.number = t.changes
	t.gone[c.Key] = d
	t.order = append(t.order, d)
	if len(t.order) > 2*maxRemembered { // keys that are deleted again and again would fill it
		t.order = slices.DeleteFunc(t.order, func(d deletion) bool { return !t.isGone(d) })
	}
	for len(t.gone) > maxRemembered {
		oldest := t.order[0]
		if t.isGone(oldest) {
			delete(t.gone, oldest.Key)
			t.forgotten++
		}
		t.order = t.order[1:]
	}
}

// note records whether c shows its object marked for deletion, not marked, or deleted. If it is marked, marked is the change that
// marked it.
func (t *tracked) note(c, marked Change) {
	known := t.marks[c.Key]
	switch {
	case c.Deleting && (known == nil || known.gone):
		t.marks[c.Key] = &mark{Change: marked}
	case c.Deleted && known != nil:
		known.gone = true
	case !c.Deleted && !c.Deleting:
		delete(t.marks, c.Key)
	}
}

// markOf returns the change that had marked the key of c, or its namespace, for deletion; nil if there was none or it is unknown.
func (t *tracked) markOf(c Change) *Change {
	m := t.marks[c.Key]
	n, ok := kubernetes.Named(c.Key)
	if m == nil && ok && n.Namespace != "" {
		m = t.marks[kubernetes.NamespaceKey(n.Namespace)]
	}
	if m == nil || m.Lineage != "" && c.Lineage != "" && m.Lineage != c.Lineage {
		return nil
	}
	return &m.Change
}

// earlier returns the change with the lower revision; the other one if one is nil.
func earlier(a, b *Change) *Change {
	if a == nil || b != nil && b.Revision < a.Revision {
		return b
	}
	return a
}

// isGone reports whether the key of d has not come back since d.
func (t *tracked) isGone(d deletion) bool {
	now, gone := t.gone[d.Key]
	return gone && now.number == d.number
}

// summary returns the summary, with the ways back to the newest deletions.
func (f *finder) summary() Summary {
	s := Summary{
		Changes: f.tracked.changes, Unseen: f.tracked.unseen, Last: f.tracked.last, Forgotten: f.tracked.forgotten,
	}
	key := string(f.Keys.From)
	if f.Keys.Namespace != "" {
		key = kubernetes.NamespaceKey(f.Keys.Namespace)
	}
	m := f.tracked.marks[key]
	if m != nil && !m.gone {
		s.Mark = &m.Change
	}
	type made struct {
		lineage  string
		revision int64
	}
	ends := map[made]*Gone{}
	for _, key := range slices.Sorted(maps.Keys(f.tracked.gone)) {
		c := f.tracked.gone[key]
		at := made{c.Lineage, c.Revision}
		if ends[at] == nil {
			ends[at] = &Gone{Change: c.Change}
		}
		ends[at].Mark = earlier(ends[at].Mark, c.mark)
		ends[at].Vanished++
	}
	for _, g := range ends {
		s.Gone = append(s.Gone, *g)
	}
	slices.SortFunc(s.Gone, func(a, b Gone) int {
		return cmp.Or(a.NotAfter.Compare(b.NotAfter), cmp.Compare(a.Revision, b.Revision))
	})
	s.Vanished = vanished(s.Gone)
	for i := max(0, len(s.Gone)-waysShown); i < len(s.Gone); i++ {
		s.Gone[i].Way = f.way(s.Gone[i].begin())
	}
	return s
}

// waysShown is the number of deletions, from the newest on, for which summary plans a way back.
const waysShown = 20

// way returns the way to the state immediately before c, or to the nearest one before it; nil if there is none.
func (f *finder) way(c Change) *Way {
	w := &Way{Revision: c.LastGood(), Lineage: c.Lineage}
	target := plan.Target{Revision: w.Revision, Lineage: c.Lineage, Plain: f.Plain}
	layout := scratchLayout("/")
	exact, err := plan.New(f.Catalog, target, layout, f.Now)
	if err == nil {
		w.Exact, w.Nearest, w.Reached = true, exact.Reach.NotAfter, exact.Reach.Revision
		return w
	}
	target.Best = true
	nearest, err := plan.New(f.Catalog, target, layout, f.Now)
	if err != nil {
		return nil
	}
	w.Nearest, w.Reached = nearest.Reach.NotAfter, nearest.Reach.Revision
	if nearest.Log == nil {
		w.Reached = nearest.Backup.Revision
	}
	return w
}
