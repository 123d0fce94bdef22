package plan_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/golden"
)

// evenLog returns a history with ten positions per segment and one per second, each a revision, from revision 100 on. Each
// segment ends with a mark.
func evenLog(id string, from time.Time, segments int) catalog.Lineage {
	l := catalog.Lineage{ID: id}
	for seq := uint64(1); seq <= uint64(segments); seq++ {
		s := catalog.Segment{Digest: fmt.Sprintf("%s%032x", id, seq), Size: 1000}
		s.Cluster, s.ClusterID, s.Lineage, s.Seq = clusterName, "cafe", id, seq
		s.Source, s.First, s.Last, s.Requests = segment.WAL, seq*10-9, seq*10, 10
		if seq > 1 {
			s.Previous = l.Segments[seq-2].Digest
		}
		at := from.Add(time.Duration(s.Last) * time.Second)
		s.End, s.Written = segment.End{Position: s.Last, Term: 2}, at.Add(time.Second)
		s.Marks = []segment.Mark{{
			Position: s.Last, Revision: int64(s.Last) + 100,
			Interval: segment.Interval{NotBefore: at, NotAfter: at.Add(10 * time.Millisecond)},
		}}
		l.Segments = append(l.Segments, s)
	}
	return l
}

// backupAt returns a backup of an evenLog that began at from.
func backupAt(from time.Time, position uint64) catalog.Backup {
	b := fixedBackup()
	b.Auth, b.Kubernetes, b.KubernetesEncrypted, b.Alarms, b.NoQuorum, b.Diverged = false, false, false, nil, false, ""
	b.Members = b.Members[:3]
	b.Started = from.Add(time.Duration(position)*time.Second + 100*time.Millisecond)
	b.Finished = b.Started.Add(100 * time.Millisecond)
	b.RaftTerm, b.RaftIndex, b.RaftIndexMax = 2, position, position
	b.Revision, b.RevisionMax = int64(position)+100, int64(position)+100
	b.ID = catalog.NewID(b.Started, b.Revision)
	return b
}

func second(n float64) time.Time { return started.Add(time.Duration(n * float64(time.Second))) }

// evenCatalog returns a catalog with one log of some segments, and backups at some positions.
func evenCatalog(segments int, backups ...uint64) catalog.Catalog {
	c := catalog.Catalog{Cluster: clusterName, Signed: true, Lineages: []catalog.Lineage{evenLog(lineageNumber(0), started, segments)}}
	for _, position := range backups {
		c.Backups = append(c.Backups, backupAt(started, position))
	}
	slices.Reverse(c.Backups)
	return c
}

// damage marks the newest backup of c as damaged.
func damage(c catalog.Catalog) catalog.Catalog {
	c.Damaged = []catalog.Damage{{ID: c.Backups[0].ID, Err: fmt.Errorf("%s: %w", c.Backups[0].ID, catalog.ErrDamaged)}}
	c.Backups = c.Backups[1:]
	return c
}

func without(c catalog.Catalog, seq uint64) catalog.Catalog {
	c.Lineages = slices.Clone(c.Lineages)
	c.Lineages[0] = c.Lineages[0].Without(seq, fmt.Errorf("segment %d is %w", seq, catalog.ErrNotFound))
	return c
}

// restored returns c with a second history that branches off at second 1000, and with a backup at its beginning if withBackup
// is true.
func restored(c catalog.Catalog, withBackup bool) catalog.Catalog {
	l := evenLog(lineageNumber(1), second(1000), 2)
	l.Segments[0].After = &segment.After{Lineage: lineageNumber(0), Seq: 1, Position: 10, Time: second(1000)}
	l.Segments[0].Reason = "another history"
	c.Lineages = append(slices.Clone(c.Lineages), l)
	if withBackup {
		c.Backups = append([]catalog.Backup{backupAt(second(1000), 1)}, c.Backups...)
	}
	return c
}

func TestPlanGoldenWithALog(t *testing.T) {
	p, err := plan.New(evenCatalog(3, 5, 12), plan.Target{Time: second(25)}, plan.Layout{Token: "token-1"}, now)
	if err != nil {
		t.Fatal(err)
	}
	want := golden.Want(t, filepath.Join("testdata", "plan-log.json"), encode(t, p))
	again, err := plan.Decode(want)
	if err != nil || !cmp.Equal(p, again) {
		t.Errorf("decoded: %v, %s", err, cmp.Diff(p, again))
	}
}

// way returns a plan as one line: its beginning and its end.
func way(p plan.Plan) string {
	if p.Log == nil {
		return fmt.Sprintf("backup at %d", p.Backup.RaftIndex)
	}
	text := fmt.Sprintf("backup at %d, segments %d to %d", p.Backup.RaftIndex, p.Log.First, p.Log.Last)
	if p.Log.Lineage != lineageNumber(0) {
		text += " of the second"
	}
	return text
}

func TestPlanOf(t *testing.T) {
	for name, test := range map[string]struct {
		catalog catalog.Catalog
		target  plan.Target
		way     string // "": an error, with
		words   string // in it
		best    string // the way with Best
		note    string // which way has
	}{
		"latest":                                         {catalog: evenCatalog(3, 5, 12), way: "backup at 12, segments 2 to 3"},
		"revision":                                       {catalog: evenCatalog(3, 5, 12), target: plan.Target{Revision: 111}, way: "backup at 5, segments 1 to 2"},
		"revision of a mark":                             {catalog: evenCatalog(3, 5), target: plan.Target{Revision: 110}, way: "backup at 5, segments 1 to 1"},
		"revision of a backup":                           {catalog: evenCatalog(3, 5, 12), target: plan.Target{Revision: 112}, way: "backup at 12"},
		"revision without a log":                         {catalog: evenCatalog(0, 5, 12), target: plan.Target{Revision: 105}, way: "backup at 5"},
		"revision too early":                             {catalog: evenCatalog(3, 5), target: plan.Target{Revision: 104}, words: "the oldest restorable point is revision 105"},
		"revision in the future":                         {catalog: evenCatalog(3, 5), target: plan.Target{Revision: 131}, words: "in the future: the newest known is 130; the nearest restorable point is revision 130", best: "backup at 5, segments 1 to 3"},
		"revision in a gap":                              {catalog: without(evenCatalog(3, 5, 22), 2), target: plan.Target{Revision: 115}, words: "nearest restorable point is revision 110", best: "backup at 5, segments 1 to 1"},
		"behind a gap":                                   {catalog: without(evenCatalog(3, 5, 22), 2), target: plan.Target{Revision: 123}, way: "backup at 22, segments 3 to 3"},
		"latest before a lost end":                       {catalog: without(evenCatalog(3, 5), 3), words: "cannot be restored", best: "backup at 5, segments 1 to 2"},
		"latest before a gap":                            {catalog: without(evenCatalog(3, 5), 2), words: "nearest restorable point is revision 110", best: "backup at 5, segments 1 to 1"},
		"time":                                           {catalog: evenCatalog(3, 5), target: plan.Target{Time: second(25)}, way: "backup at 5, segments 1 to 2"},
		"time of a mark":                                 {catalog: evenCatalog(3, 5), target: plan.Target{Time: second(20.01)}, way: "backup at 5, segments 1 to 2"},
		"time right before one":                          {catalog: evenCatalog(3, 5), target: plan.Target{Time: second(20)}, way: "backup at 5, segments 1 to 1"},
		"time of the end":                                {catalog: evenCatalog(3, 5), target: plan.Target{Time: second(30.01)}, way: "backup at 5, segments 1 to 3"},
		"time behind the end":                            {catalog: evenCatalog(3, 5), target: plan.Target{Time: second(31)}, words: "before 2026-11-21T09:25:04.000Z; the nearest restorable point is revision 130", best: "backup at 5, segments 1 to 3"},
		"time before everything, without a log":          {catalog: evenCatalog(0, 5, 12), target: plan.Target{Time: second(1)}, words: "the oldest restorable point is revision 105 at "},
		"revision before everything, without a log":      {catalog: evenCatalog(0, 5, 12), target: plan.Target{Revision: 1}, words: "the oldest restorable point is revision 105 at "},
		"time before everything":                         {catalog: evenCatalog(3, 5), target: plan.Target{Time: second(5.1)}, words: "reaches back to 2026-11-21T09:24:38.100Z; the oldest restorable point is revision 105 at "},
		"time between a backup and the next mark":        {catalog: evenCatalog(3, 5, 12), target: plan.Target{Time: second(13)}, way: "backup at 12"},
		"time in a gap":                                  {catalog: without(evenCatalog(3, 5, 22), 2), target: plan.Target{Time: second(15)}, words: "in a gap", best: "backup at 5, segments 1 to 1"},
		"time in a gap, a backup of which is nearer":     {catalog: without(evenCatalog(3, 5, 15, 22), 2), target: plan.Target{Time: second(16)}, words: "nearest restorable point is backup", best: "backup at 15"},
		"position":                                       {catalog: evenCatalog(3, 5, 12), target: plan.Target{Position: 11}, way: "backup at 5, segments 1 to 2"},
		"position of a backup":                           {catalog: evenCatalog(3, 5, 12), target: plan.Target{Position: 12}, way: "backup at 12, segments 2 to 2"},
		"position behind the end":                        {catalog: evenCatalog(3, 5), target: plan.Target{Position: 31}, words: "nearest restorable point is revision 130", best: "backup at 5, segments 1 to 3"},
		"position before the base":                       {catalog: evenCatalog(3, 5), target: plan.Target{Position: 4}, words: "no part of the log that follows a backup contains position 4"},
		"at rest":                                        {catalog: evenCatalog(3, 5, 30), way: "backup at 30, segments 3 to 3"},
		"the log ends before":                            {catalog: evenCatalog(3, 5, 999), way: "backup at 999", note: "are not archived"},
		"no log":                                         {catalog: evenCatalog(0, 5, 12), way: "backup at 12"},
		"no backup for the log":                          {catalog: without(evenCatalog(1, 5), 1), way: "backup at 5", note: "this backup is restored without it"},
		"damaged, and covered":                           {catalog: damage(evenCatalog(3, 5, 12)), way: "backup at 5, segments 1 to 3"},
		"damaged, and not covered":                       {catalog: damage(evenCatalog(3, 5, 99)), words: "a newer backup is damaged", best: "backup at 5, segments 1 to 3"},
		"damaged, without a log":                         {catalog: damage(evenCatalog(0, 5, 12)), words: "the newest backup", best: "backup at 5"},
		"damaged behind one that the log does not cover": {catalog: damage(evenCatalog(3, 5, 999, 1000)), words: "the newest backup", best: "backup at 999"},
		"in two histories":                               {catalog: restored(evenCatalog(3, 5), true), target: plan.Target{Revision: 115}, way: "backup at 1, segments 1 to 2 of the second", note: "--lineage chooses another"},
		"in the older of two":                            {catalog: restored(evenCatalog(3, 5), true), target: plan.Target{Revision: 115, Lineage: lineageNumber(0)}, way: "backup at 5, segments 1 to 2"},
		"only in the older of two":                       {catalog: restored(evenCatalog(3, 5), true), target: plan.Target{Revision: 125}, way: "backup at 5, segments 1 to 3"},
		"latest of two":                                  {catalog: restored(evenCatalog(3, 5), true), way: "backup at 1, segments 1 to 2 of the second"},
		"the newer of two has no backup":                 {catalog: restored(evenCatalog(3, 5), false), words: "a newer history, lineage " + lineageNumber(1), best: "backup at 5, segments 1 to 3"},
		"no such lineage":                                {catalog: evenCatalog(3, 5), target: plan.Target{Lineage: lineageNumber(7)}, words: "lineage " + lineageNumber(7) + " is not in the log"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := plan.New(test.catalog, test.target, plan.Layout{Token: "t"}, now)
			if test.way != "" && (err != nil || way(p) != test.way || !hasNote(p, test.note)) {
				t.Fatalf("got %q, %v, notes %q, want %q with %q", way(p), err, p.Notes, test.way, test.note)
			}
			if test.way == "" && (err == nil || !strings.Contains(err.Error(), test.words)) {
				t.Fatalf("got error %v, want %q", err, test.words)
			}
			if test.way == "" && !errors.Is(err, catalog.ErrNotFound) && !errors.Is(err, catalog.ErrDamaged) {
				t.Errorf("error %v", err)
			}
			test.target.Best = true
			p, err = plan.New(test.catalog, test.target, plan.Layout{Token: "t"}, now)
			switch {
			case test.way != "" && (err != nil || way(p) != test.way):
				t.Errorf("with Best: %q, %v", way(p), err)
			case test.best != "" && (err != nil || way(p) != test.best):
				t.Errorf("with Best: %q, %v, want %q", way(p), err, test.best)
			case test.way == "" && test.best == "" && err == nil:
				t.Errorf("with Best: %q, want an error", way(p))
			}
		})
	}
}

// A mark may be immediately before the first segment, at the position of the base.
func TestRevisionOfAMarkBeforeTheFirstSegment(t *testing.T) {
	c := evenCatalog(2, 11)
	l := &c.Lineages[0]
	l.Segments = l.Segments[1:]
	before := segment.Mark{Position: 10, Revision: 111, Interval: segment.Interval{NotBefore: second(10.3), NotAfter: second(10.4)}}
	l.Segments[0].Marks = append([]segment.Mark{before}, l.Segments[0].Marks...)
	c.Backups[0].RaftIndex, c.Backups[0].RaftIndexMax, c.Backups[0].Revision = 10, 11, 110
	p, err := plan.New(c, plan.Target{Revision: 111}, plan.Layout{Token: "t"}, now)
	if err != nil || way(p) != "backup at 10, segments 2 to 2" {
		t.Errorf("got %q, %v", way(p), err)
	}
}

// runs is a run of plans in which some things turn out to be bad.
type runs struct {
	ways []string
	find func(plan.Plan) *plan.Obstacle
}

// pursue plans for t, and around each obstacle that find returns, as restore.RunTarget does.
func pursue(c catalog.Catalog, t plan.Target, find func(plan.Plan) *plan.Obstacle) (plan.Plan, error) {
	request := plan.Request{Catalog: c, Target: t, Layout: plan.Layout{Token: "t"}, Now: now}
	var met []plan.Blocked
	p, err := plan.Around(request)
	for err == nil {
		obstacle := find(p)
		if obstacle == nil {
			return p, nil
		}
		found := fmt.Errorf("%w: found by the run", catalog.ErrDamaged)
		met = append(met, plan.Blocked{Plan: p, Obstacle: *obstacle, Err: found})
		p, err = plan.Around(request, met...)
		if err != nil {
			err = fmt.Errorf("%w; %w", found, err)
		}
	}
	return p, err
}

// pursue notes the ways that pursue takes.
func (r *runs) pursue(c catalog.Catalog, t plan.Target) (plan.Plan, error) {
	return pursue(c, t, func(p plan.Plan) *plan.Obstacle {
		r.ways = append(r.ways, way(p))
		if p.Log != nil && p.Log.Position > 0 {
			r.ways[len(r.ways)-1] += fmt.Sprintf(" up to %d", p.Log.Position)
		}
		return r.find(p)
	})
}

func TestAround(t *testing.T) {
	bad := func(positions ...uint64) func(plan.Plan) *plan.Obstacle {
		return func(p plan.Plan) *plan.Obstacle {
			if slices.Contains(positions, p.Backup.RaftIndex) {
				return &plan.Obstacle{Base: true}
			}
			return nil
		}
	}
	lacks := func(seq uint64) func(plan.Plan) *plan.Obstacle {
		return func(p plan.Plan) *plan.Obstacle {
			if p.Log != nil && p.Log.First <= seq && seq <= p.Log.Last {
				return &plan.Obstacle{Segment: seq}
			}
			return nil
		}
	}
	// The replay is right up to position 10, and wrong at 20.
	differs := func(p plan.Plan) *plan.Obstacle {
		if p.Log != nil && p.Backup.RaftIndex < 20 && (p.Log.Position == 0 || p.Log.Position >= 20) && p.Log.Last >= 2 {
			return &plan.Obstacle{Marked: 10}
		}
		return nil
	}
	for name, test := range map[string]struct {
		catalog catalog.Catalog
		target  plan.Target
		find    func(plan.Plan) *plan.Obstacle
		ways    []string
		words   string // of the error; "" for none
		note    string
	}{
		"nothing in the way": {catalog: evenCatalog(2, 5), find: bad(), ways: []string{"backup at 5, segments 1 to 2"}},
		"a damaged base": {
			catalog: evenCatalog(2, 5, 12), find: bad(12), note: "another way was taken: damaged: found by the run",
			ways: []string{"backup at 12, segments 2 to 2", "backup at 5, segments 1 to 2"},
		},
		"every base is damaged": {
			catalog: evenCatalog(2, 5, 12), target: plan.Target{Best: true}, find: bad(5, 12), words: "no backup of cluster",
			ways: []string{"backup at 12, segments 2 to 2", "backup at 5, segments 1 to 2"},
		},
		"the damaged base is behind the log": {
			catalog: evenCatalog(2, 5, 999), find: bad(999), words: "nearest restorable point is revision 120", ways: []string{"backup at 999"},
		},
		"and the best is asked for": {
			catalog: evenCatalog(2, 5, 999), target: plan.Target{Best: true}, find: bad(999), note: settled,
			ways: []string{"backup at 999", "backup at 5, segments 1 to 2"},
		},
		"a missing segment before another base": {
			catalog: withCheap(evenCatalog(3, 5, 22), 5), find: lacks(2), note: "another way was taken",
			ways: []string{"backup at 5, segments 1 to 3", "backup at 22, segments 3 to 3"},
		},
		"a missing segment": {
			catalog: evenCatalog(3, 5), find: lacks(2), ways: []string{"backup at 5, segments 1 to 3"},
			words: "nearest restorable point is revision 110",
		},
		"a missing segment, the best": {
			catalog: evenCatalog(3, 5), target: plan.Target{Best: true}, find: lacks(2), note: settled,
			ways: []string{"backup at 5, segments 1 to 3", "backup at 5, segments 1 to 1"},
		},
		"a segment that is not in the catalog": {
			catalog: evenCatalog(3, 5), ways: []string{"backup at 5, segments 1 to 3"}, words: "found by the run",
			find: func(plan.Plan) *plan.Obstacle { return &plan.Obstacle{Segment: 77} },
		},
		"a mark that does not hold": {
			catalog: evenCatalog(3, 5), find: differs, ways: []string{"backup at 5, segments 1 to 3"},
			words: "the log can be used only up to position 10; the nearest restorable point is revision 110",
		},
		"a mark that does not hold, the best": {
			catalog: evenCatalog(3, 5), target: plan.Target{Best: true}, find: differs, note: settled,
			ways: []string{"backup at 5, segments 1 to 3", "backup at 5, segments 1 to 1 up to 10"},
		},
		"a mark that does not hold, and a backup behind it": {
			catalog: withCheap(evenCatalog(3, 5, 22), 5), find: differs, note: "another way was taken",
			ways: []string{"backup at 5, segments 1 to 3", "backup at 22, segments 3 to 3"},
		},
		"a mark that does not hold, and only a backup before it": {
			catalog: evenCatalog(3, 2, 5), find: differs, ways: []string{"backup at 5, segments 1 to 3"},
			words: "the nearest restorable point is revision 110",
		},
		"one backup by its name": {
			catalog: evenCatalog(3, 5, 12), target: plan.Target{Backup: backupAt(started, 12).ID}, find: bad(12),
			ways: []string{"backup at 12"}, words: "found by the run",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &runs{find: test.find}
			p, err := r.pursue(test.catalog, test.target)
			if !slices.Equal(r.ways, test.ways) {
				t.Errorf("it took %q, want %q (error %v)", r.ways, test.ways, err)
			}
			if test.words == "" && (err != nil || !hasNote(p, test.note)) {
				t.Errorf("got %v, notes %q, want %q", err, p.Notes, test.note)
			}
			if test.words != "" && (err == nil || !strings.Contains(err.Error(), test.words) || !errors.Is(err, catalog.ErrDamaged)) {
				t.Errorf("got error %v, want %q", err, test.words)
			}
		})
	}
}

// withCheap makes the backup at a position so small that the route from it is the shortest.
func withCheap(c catalog.Catalog, position uint64) catalog.Catalog {
	for i := range c.Backups {
		if c.Backups[i].RaftIndex != position {
			c.Backups[i].Plain.Size = 1 << 30
		}
	}
	return c
}

// The revision of a base that a run has found counts: by its upper bound alone no backup would reach the log.
func TestAroundKnowsHowFarTheBaseWas(t *testing.T) {
	c := evenCatalog(3, 9)
	c.Backups[0].RaftIndexMax = 12
	r := &runs{find: func(p plan.Plan) *plan.Obstacle {
		if p.Log.Position == 0 {
			return &plan.Obstacle{Marked: 10}
		}
		return nil
	}}
	_, err := r.pursue(c, plan.Target{Best: true})
	want := []string{"backup at 9, segments 1 to 3", "backup at 9, segments 1 to 1 up to 10"}
	if err != nil || !slices.Equal(r.ways, want) {
		t.Errorf("got %q, %v, want %q", r.ways, err, want)
	}
	if c.Backups[0].RaftIndexMax != 12 {
		t.Error("the catalog was changed")
	}
}

// A run may report an obstacle that Around does not know, or that its plan cannot have met.
func TestAroundAnUnknownObstacle(t *testing.T) {
	plain := evenCatalog(3, 9)
	plain.Lineages = nil // the plan has no log
	for name, test := range map[string]struct {
		catalog  catalog.Catalog
		obstacle plan.Obstacle
	}{
		"no kind":                 {evenCatalog(3, 9), plan.Obstacle{}},
		"a mark without a log":    {plain, plan.Obstacle{Marked: 10}},
		"a segment without a log": {plain, plan.Obstacle{Segment: 1}},
		"an end without a log":    {plain, plan.Obstacle{Ended: 110}},
	} {
		r := &runs{find: func(plan.Plan) *plan.Obstacle { return &test.obstacle }}
		_, err := r.pursue(test.catalog, plan.Target{Best: true})
		if err == nil || len(r.ways) != 1 || !strings.Contains(err.Error(), "no plan avoids an obstacle of this kind") {
			t.Errorf("%s: %q, %v", name, r.ways, err)
		}
	}
}

// The target may be after the last mark; the run finds that the log ends before it.
func TestAroundAfterTheEnd(t *testing.T) {
	c := evenCatalog(3, 9)
	c.Lineages[0].Segments[2].Marks[0].Revision = 0 // a busy member does not always know
	find := func(p plan.Plan) *plan.Obstacle {
		if p.Log.Revision == 129 {
			return &plan.Obstacle{Ended: 127}
		}
		return nil
	}
	r := &runs{find: find}
	_, err := r.pursue(c, plan.Target{Revision: 129})
	if err == nil || len(r.ways) != 1 || !strings.Contains(err.Error(), "revision 127") || !strings.Contains(err.Error(), "--best") {
		t.Errorf("without --best: %q, %v", r.ways, err)
	}
	r = &runs{find: find}
	p, err := r.pursue(c, plan.Target{Revision: 129, Best: true})
	if err != nil || len(r.ways) != 2 || p.Log.Revision != 0 || p.Log.Last != 3 {
		t.Errorf("with --best: %q, %v, %+v", r.ways, err, p.Log)
	}
	if len(c.Lineages[0].Segments[2].Marks) != 1 {
		t.Error("the catalog was changed")
	}
}

// The plan for a time between two distant marks explains why it ends earlier, and names the nearer revision.
func TestPlanToATimeBetweenMarks(t *testing.T) {
	for name, test := range map[string]struct {
		at    float64
		words string // "": none
	}{
		"much later, and nearer to the next": {at: 18, words: "this is 7.99s before 2026-11-21T09:24:51.000Z: the log records no time between 2026-11-21T09:24:43.010Z and 2026-11-21T09:24:53.010Z"},
		"its revision":                       {at: 18, words: "--to-revision 120 restores the state of at most 2.01s after the requested time, and any earlier revision can be restored too; revision 120 is nearer"},
		"nearer to the one before":           {at: 14, words: "--to-revision 120 restores the state of at most 6.01s after the requested time, and any earlier revision can be restored too"},
		"hardly later":                       {at: 11},
	} {
		p, err := plan.New(evenCatalog(3, 5), plan.Target{Time: second(test.at)}, plan.Layout{Token: "t"}, now)
		if err != nil || test.words != "" && !hasNote(p, test.words) || test.words == "" && hasNote(p, "the log has no mark") {
			t.Errorf("%s: %v, %q; want %q", name, err, p.Notes, test.words)
		}
		nearer := hasNote(p, "is nearer")
		if nearer != (test.at == 18) {
			t.Errorf("%s: nearer %t: %q", name, nearer, p.Notes)
		}
	}
}

// A target in a gap has a point before the gap and one after it, each with the target to request.
func TestPlanInAGapNamesBothNeighbours(t *testing.T) {
	c := without(evenCatalog(5, 5, 32, 41), 3)
	for name, target := range map[string]plan.Target{
		"a revision": {Revision: 125}, "a time": {Time: second(25)}, "a revision of the lineage": {Revision: 125, Lineage: lineageNumber(0)},
	} {
		_, err := plan.New(c, target, plan.Layout{Token: "t"}, now)
		unreachable, ok := errors.AsType[*plan.UnreachableError](err)
		if !ok {
			t.Errorf("%s: %v", name, err)
			continue
		}
		id := string(backupAt(started, 32).ID)
		if !strings.Contains(unreachable.Nearest, "(--to-revision 120)") || !strings.Contains(unreachable.Next, "backup "+id+", revision 132 ") ||
			!strings.Contains(err.Error(), "; the first point after it is backup ") || !strings.HasSuffix(err.Error(), "(dr restore "+id+")") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := plan.New(c, plan.Target{Revision: 999}, plan.Layout{Token: "t"}, now)
	unreachable, ok := errors.AsType[*plan.UnreachableError](err)
	if !ok || unreachable.Next != "" {
		t.Errorf("behind the end: %v", err)
	}
}

// A window whose last mark has no revision has a bound for the revision that a restore to its end reaches: the list shows
// both.
func TestWindowsKnowTheMostRevision(t *testing.T) {
	c := evenCatalog(3, 5)
	w := c.Windows()[0]
	if w.To.Revision != 130 || w.Most != 130 {
		t.Errorf("a mark at the end: %d, at most %d", w.To.Revision, w.Most)
	}
	c.Lineages[0].Segments[2].Marks[0].Revision = 0
	w = c.Windows()[0]
	if w.To.Revision != 120 || w.Most != 130 {
		t.Errorf("no mark at the end: %d, at most %d", w.To.Revision, w.Most)
	}
}

// A wrong key rules out every backup for the same recipients.
func TestAroundAWrongKey(t *testing.T) {
	sealedFor := func(recipient string, c catalog.Catalog, positions ...uint64) catalog.Catalog {
		for i := range c.Backups {
			if slices.Contains(positions, c.Backups[i].RaftIndex) {
				c.Backups[i].Seal.Recipients = []string{recipient}
			}
		}
		return c
	}
	for name, test := range map[string]struct {
		catalog catalog.Catalog
		ways    []string
		reached bool
	}{
		"the newer ones are for it": {
			catalog: sealedFor("old", withCheap(evenCatalog(3, 2, 5, 22), 5), 2, 5), reached: true,
			ways: []string{"backup at 5, segments 1 to 3", "backup at 22, segments 3 to 3"},
		},
		"none is": {
			catalog: sealedFor("old", withCheap(evenCatalog(3, 2, 5, 22), 5), 2, 5, 22),
			ways:    []string{"backup at 5, segments 1 to 3"},
		},
	} {
		r := &runs{find: func(p plan.Plan) *plan.Obstacle {
			if p.Backup.Seal.Recipients[0] == "old" {
				return &plan.Obstacle{Base: true, WrongKey: true}
			}
			return nil
		}}
		_, err := r.pursue(test.catalog, plan.Target{})
		if !slices.Equal(r.ways, test.ways) || (err == nil) != test.reached {
			t.Errorf("%s: %q, %v", name, r.ways, err)
		}
	}
}
