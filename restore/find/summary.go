package find

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/plan"
)

// Summary is what a search has found.
type Summary struct {
	Changes int // that were told
	Unseen  int // parts of which the archive does not have everything
	// Last is what happened last to any of the keys, in the window or before it; nil if they were never there.
	Last *Change
	// Gone are the deletions whose keys were not there any more in the end, by time. Of the keys deleted only the newest
	// 100,000 are remembered; Forgotten is how many more there were.
	Gone      []Gone
	Forgotten int
	// Vanished is the newest of these ends that belong together; nil if Gone is empty.
	Vanished *Vanished
}

// Gone is the end of some keys: they vanished with one revision and did not come back.
type Gone struct {
	Change       // of one of them
	Vanished int // how many
	// Way leads to the state right before; nil if the archive does not lead anywhere near.
	Way *Way
}

// LastGood is the last revision at which the key was surely there, if c deleted it.
func (c Change) LastGood() int64 {
	if c.After > 0 {
		return c.After
	}
	return c.Revision - 1
}

// Way is a target of dr restore.
type Way struct {
	Revision int64  // to be said with --to-revision
	Lineage  string // to be said if there are several histories
	Exact    bool   // else --best takes the nearest that there is:
	Nearest  time.Time
	Reached  int64 // revision of the nearest, 0 if only a replay would tell
}

// remembered is how many deleted keys are: each may come back, and nobody else knows them any more.
const remembered = 100_000

// tracked is what the summary needs to know of what was seen.
type tracked struct {
	changes, unseen, forgotten int

	last  *Change
	mark  *Change             // that last marked the namespace for deletion
	alive bool                // it has been put without a mark since
	gone  map[string]deletion // by key: those that have not come back
	order []deletion          // the oldest first, with some that are not in gone any more
}

type deletion struct {
	Change
	number int // tells deletions of one key apart
}

func newTracked() *tracked { return &tracked{gone: map[string]deletion{}} }

func (t *tracked) add(c Change, inside bool) {
	t.last = &c
	if c.Marked && (t.mark == nil || t.alive) {
		t.mark, t.alive = &c, false
	}
	t.alive = t.alive || !c.Marked && t.ofMarked(c)
	if inside {
		t.changes++
	}
	delete(t.gone, c.Key)
	if !c.Deleted || !inside {
		return
	}
	d := deletion{c, t.changes}
	t.gone[c.Key] = d
	t.order = append(t.order, d)
	if len(t.order) > 2*remembered { // keys that come and go would fill it
		t.order = slices.DeleteFunc(t.order, func(d deletion) bool { return !t.still(d) })
	}
	for len(t.gone) > remembered {
		if oldest := t.order[0]; t.still(oldest) {
			delete(t.gone, oldest.Key)
			t.forgotten++
		}
		t.order = t.order[1:]
	}
}

// ofMarked reports whether c is a change of the namespace that was marked.
func (t *tracked) ofMarked(c Change) bool { return t.mark != nil && c.Key == t.mark.Key }

// still reports whether the key of d has not come back since.
func (t *tracked) still(d deletion) bool {
	now, gone := t.gone[d.Key]
	return gone && now.number == d.number
}

// summary counts, and looks for the ways back.
func (f *finder) summary() Summary {
	s := Summary{Changes: f.tracked.changes, Unseen: f.tracked.unseen, Last: f.tracked.last, Forgotten: f.tracked.forgotten}
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
		ends[at].Vanished++
	}
	for _, g := range ends {
		s.Gone = append(s.Gone, *g)
	}
	slices.SortFunc(s.Gone, func(a, b Gone) int {
		return cmp.Or(a.NotAfter.Compare(b.NotAfter), cmp.Compare(a.Revision, b.Revision))
	})
	s.Vanished = vanished(s.Gone, f.tracked.mark)
	for i := max(0, len(s.Gone)-waysShown); i < len(s.Gone); i++ {
		s.Gone[i].Way = f.way(s.Gone[i].Change)
	}
	return s
}

// waysShown bounds for how many ends, from the newest on, a way back is looked for: each is a plan.
const waysShown = 20

// way is how to get back to the state right before c.
func (f *finder) way(c Change) *Way {
	w := &Way{Revision: c.LastGood(), Lineage: c.Lineage}
	target := plan.Target{Revision: w.Revision, Lineage: c.Lineage}
	layout := scratchLayout("/")
	if plan, err := plan.New(f.archive.Catalog, target, layout, f.now); err == nil {
		w.Exact, w.Nearest, w.Reached = true, plan.Reach.NotAfter, plan.Reach.Revision
		return w
	}
	target.Best = true
	plan, err := plan.New(f.archive.Catalog, target, layout, f.now)
	if err != nil {
		return nil
	}
	w.Nearest, w.Reached = plan.Reach.NotAfter, plan.Reach.Revision
	if plan.Log == nil {
		w.Reached = plan.Backup.Revision
	}
	return w
}
