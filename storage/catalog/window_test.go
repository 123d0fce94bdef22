package catalog_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// past is a complete history, with all segments that an archiver without faults would store.
type past struct {
	id       string
	begun    time.Time
	segments []catalog.Segment
}

// digestNumber returns a made-up digest for a header.
func digestNumber(lineage string, seq uint64) string { return fmt.Sprintf("%s%032x", lineage, seq) }

// drawPast returns a history that began at begun and follows before, if that is not nil.
func drawPast(rt *rapid.T, n int, begun time.Time, before *past) *past {
	p := &past{id: stored.LineageID(n), begun: begun}
	position, term, now := rapid.Uint64Range(0, 30).Draw(rt, "position"), uint64(2), begun
	var mark segment.Mark
	for seq := range uint64(rapid.IntRange(1, 10).Draw(rt, "segments")) {
		s := catalog.Segment{Digest: digestNumber(p.id, seq+1), Size: 1000 + int64(seq)}
		s.Cluster, s.ClusterID, s.Lineage, s.Seq = "c", "cdf818194e3a8c32", p.id, seq+1
		s.First = position + 1
		if seq > 0 {
			s.Previous = digestNumber(p.id, seq)
			if rapid.IntRange(0, 5).Draw(rt, "gap") == 0 {
				s.First, s.Reason = s.First+rapid.Uint64Range(1, 20).Draw(rt, "lost"), "the log of the member was gone"
			}
		}
		if seq == 0 && before != nil {
			last := before.segments[len(before.segments)-1]
			s.Reason = "another history"
			s.After = &segment.After{Lineage: before.id, Seq: last.Seq, Position: last.Last, Time: last.Written.Add(time.Hour)}
		}
		term += rapid.Uint64Range(0, 2).Draw(rt, "term")
		s.Last = s.First + rapid.Uint64Range(0, 9).Draw(rt, "length")
		s.End = segment.End{Position: s.Last, Term: term}
		position = s.Last
		now = now.Add(time.Minute)
		s.Written = now
		p.segments = append(p.segments, s)
		mark = p.drawMarks(rt, mark)
	}
	return p
}

// drawMarks adds one to three marks to the last segment, none earlier than mark, and returns the last of them.
func (p *past) drawMarks(rt *rapid.T, mark segment.Mark) segment.Mark {
	s := &p.segments[len(p.segments)-1]
	positions := rapid.SliceOfN(rapid.Uint64Range(s.First-1, s.Last), 1, 3).Draw(rt, "marks")
	slices.Sort(positions)
	for _, position := range positions {
		from, to := p.during(position)
		early := time.Duration(rapid.IntRange(0, 3).Draw(rt, "early")) * time.Second
		late := time.Duration(rapid.IntRange(0, 3).Draw(rt, "late")) * time.Second
		m := segment.Mark{Position: position, Interval: segment.Interval{NotBefore: from.Add(-early), NotAfter: to.Add(late)}}
		if rapid.Bool().Draw(rt, "revision known") {
			m.Revision = int64(position) + 100
		}
		if m.NotBefore.Before(mark.NotBefore) {
			m.NotBefore = mark.NotBefore
		}
		if m.NotAfter.Before(mark.NotAfter) {
			m.NotAfter = mark.NotAfter
		}
		s.Marks = append(s.Marks, m)
		mark = m
	}
	return mark
}

// during returns the interval in which the cluster was at position. Each segment takes one minute, divided equally among its
// positions. Lost positions after a segment take no time.
func (p *past) during(position uint64) (from, to time.Time) {
	for i := len(p.segments) - 1; i >= 0; i-- {
		s := p.segments[i]
		minute := p.begun.Add(time.Duration(i) * time.Minute)
		if position >= s.First {
			position = min(position, s.Last)
			step := time.Minute / time.Duration(s.Last-s.First+2)
			return minute.Add(time.Duration(position-s.First+1) * step), minute.Add(time.Duration(position-s.First+2)*step - 1)
		}
	}
	return p.begun, p.begun
}

// termAt returns the term at the end of the segment at position.
func (p *past) termAt(position uint64) uint64 {
	term := p.segments[0].End.Term
	for _, s := range p.segments {
		if s.First <= position {
			term = s.End.Term
		}
	}
	return term
}

// drawBackup returns a backup that was taken at a random position of p.
func (p *past) drawBackup(rt *rapid.T, n int) catalog.Backup {
	lowest, highest := p.segments[0].First-1, p.segments[len(p.segments)-1].Last
	position := rapid.Uint64Range(max(1, lowest), max(1, highest)).Draw(rt, "index")
	from, _ := p.during(position)
	var b catalog.Backup
	b.ID, b.Cluster, b.ClusterID = stored.IDAt(n), "c", "0cdf818194e3a8c32"
	b.Started, b.Finished = from, from.Add(time.Duration(rapid.IntRange(1, 100).Draw(rt, "took"))*time.Second)
	b.RaftIndex, b.RaftTerm, b.Revision = position, p.termAt(position), int64(position)+100
	if rapid.Bool().Draw(rt, "upper bounds") {
		b.RaftIndexMax = position + rapid.Uint64Range(0, 3).Draw(rt, "more")
		b.RevisionMax = int64(b.RaftIndexMax) + 100
	}
	switch rapid.IntRange(0, 7).Draw(rt, "kind") {
	case 0:
		b.Diverged = "member b has another hash"
	case 1:
		b.Alarms = []string{"CORRUPT"}
	case 2:
		b.Proofs = []catalog.Proof{stored.ProofOf(b.ID, catalog.Opened, catalog.Failed, 1)}
	}
	return b
}

// world is up to three histories of one cluster with the same cluster id, and backups of them.
type world struct {
	pasts   []*past
	backups []catalog.Backup
	of      map[catalog.ID]string // the lineage of each backup
	catalog catalog.Catalog       // of the histories after damage
}

func drawWorld(rt *rapid.T) *world {
	w := &world{of: map[catalog.ID]string{}}
	begun := stored.Noon
	var before *past
	for i := range rapid.IntRange(1, 3).Draw(rt, "lineages") {
		p := drawPast(rt, i, begun, before)
		begun, before = begun.Add(2*time.Hour), p
		w.pasts = append(w.pasts, p)
	}
	for i := range rapid.IntRange(0, 8).Draw(rt, "backups") {
		p := rapid.SampledFrom(w.pasts).Draw(rt, "of")
		b := p.drawBackup(rt, i)
		w.backups, w.of[b.ID] = append(w.backups, b), p.id
	}
	slices.SortStableFunc(w.backups, func(a, b catalog.Backup) int { return b.Started.Compare(a.Started) })
	w.catalog = catalog.Catalog{Cluster: "c", Backups: w.backups}
	for _, p := range w.pasts {
		w.catalog.Lineages = append(w.catalog.Lineages, catalog.Lineage{ID: p.id, Segments: w.spoil(rt, p)})
	}
	return w
}

// spoil returns the segments of p with some removed, doubled, swapped or mixed with others.
func (w *world) spoil(rt *rapid.T, p *past) []catalog.Segment {
	all := slices.Clone(p.segments)
	for range rapid.IntRange(0, 3).Draw(rt, "spoils") {
		i, j := rapid.IntRange(0, len(all)-1).Draw(rt, "i"), rapid.IntRange(0, len(all)-1).Draw(rt, "j")
		switch rapid.SampledFrom([]string{"remove", "double", "swap", "foreign", "other cluster", "other chain"}).Draw(rt, "spoil") {
		case "remove":
			if len(all) > 1 {
				all = slices.Delete(all, i, i+1)
			}
		case "double":
			all = slices.Insert(all, j, all[i])
		case "swap":
			all[i], all[j] = all[j], all[i]
		case "foreign":
			other := rapid.SampledFrom(w.pasts).Draw(rt, "other")
			all = slices.Insert(all, j, other.segments[i%len(other.segments)])
		case "other cluster":
			s := all[i]
			s.ClusterID, s.Digest = "1", digestNumber(p.id, 1<<32)
			all = slices.Insert(all, i+1, s)
		case "other chain":
			s := all[i]
			s.Seq, s.Previous, s.Digest = s.Seq+1, digestNumber(p.id, 1<<33), digestNumber(p.id, 1<<34)
			s.First, s.Last = s.Last+1, s.Last+5
			all = slices.Insert(all, i+1, s)
		}
	}
	return all
}

// genuine reports whether s is a segment of p as it was written.
func (p *past) genuine(s catalog.Segment) bool {
	return slices.ContainsFunc(p.segments, func(g catalog.Segment) bool { return g.Digest == s.Digest })
}

// TestStretches checks that each stretch is a run of the lineage's own segments without a gap, and none could be longer.
func TestStretches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		for i, l := range w.catalog.Lineages {
			stretches := l.Stretches()
			for n, s := range stretches {
				wantUnbroken(rt, l.ID, s)
				if n == 0 {
					continue
				}
				before := stretches[n-1]
				if s.First() <= before.Last() {
					rt.Fatalf("a stretch begins at %d, the one before it ends at %d", s.First(), before.Last())
				}
				last, first := before.Segments[len(before.Segments)-1], s.Segments[0]
				if w.pasts[i].genuine(last) && w.pasts[i].genuine(first) && first.Seq == last.Seq+1 && first.First == last.Last+1 {
					rt.Fatalf("segments %d and %d are kept apart", last.Seq, first.Seq)
				}
			}
		}
	})
}

func wantUnbroken(rt *rapid.T, lineage string, s catalog.Stretch) {
	for i, b := range s.Segments {
		if b.Lineage != lineage || s.Lineage != lineage || b.ClusterID != s.Segments[0].ClusterID {
			rt.Fatalf("segment %d of lineage %s, cluster %s is in a stretch of %s", b.Seq, b.Lineage, b.ClusterID, lineage)
		}
		if i == 0 {
			continue
		}
		a := s.Segments[i-1]
		if b.Seq != a.Seq+1 || b.Previous != a.Digest || b.First != a.Last+1 || b.End.Term < a.End.Term {
			rt.Fatalf("segment %d (%d to %d) stands behind %d (%d to %d)", b.Seq, b.First, b.Last, a.Seq, a.First, a.Last)
		}
	}
}

// TestStretchesOfHoles checks that each run of the remaining segments is a stretch, if others are only missing.
func TestStretchesOfHoles(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPast(rt, 0, stored.Noon, nil)
		var left []catalog.Segment
		var want [][]uint64
		for i, s := range p.segments {
			if rapid.IntRange(0, 3).Draw(rt, "lost") == 0 {
				continue
			}
			n := len(left)
			if n == 0 || left[n-1].Seq+1 != s.Seq || p.segments[i].Reason != "" {
				want = append(want, nil)
			}
			left = append(left, s)
			want[len(want)-1] = append(want[len(want)-1], s.Seq)
		}
		got := catalog.Lineage{ID: p.id, Segments: left}.Stretches()
		if len(got) != len(want) {
			rt.Fatalf("%d stretches, want %v", len(got), want)
		}
		for i, s := range got {
			if !slices.Equal(stored.SeqsOf(s.Segments), want[i]) {
				rt.Fatalf("stretch %d has %v, want %v", i, stored.SeqsOf(s.Segments), want[i])
			}
		}
	})
}

// TestWindows checks that every point of a window lies in segments without a gap after its base, whatever was lost or mixed
// up.
func TestWindows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		for _, window := range w.catalog.Windows() {
			base, err := w.catalog.Find(window.Base)
			if err != nil {
				rt.Fatal(err)
			}
			if (base.CheckUsable() == nil) != (window.Doubt == "") {
				rt.Fatalf("%+v of a base that is %v", window, base.CheckUsable())
			}
			if window.From.Position < max(base.RaftIndex, base.RaftIndexMax) || window.From.Position > window.To.Position ||
				window.From.Revision > window.To.Revision || window.From.Time.After(window.To.Time) {
				rt.Fatalf("%+v, base from %d to %d", window, base.RaftIndex, base.RaftIndexMax)
			}
			foreign := w.of[base.ID] != window.Lineage
			wantCovered(rt, w.catalog, window, base.RaftIndex+1, foreign)
		}
	})
}

// wantCovered fails the test unless the window is a part of one stretch that begins at or before position. A base of another
// history is allowed only directly before a stretch whose beginning is lost: there no mark bounds the time.
func wantCovered(rt *rapid.T, c catalog.Catalog, window catalog.Window, position uint64, foreign bool) {
	for _, l := range c.Lineages {
		for _, s := range l.Stretches() {
			if l.ID != window.Lineage || s.Last() != window.To.Position {
				continue
			}
			wantUnbroken(rt, l.ID, s)
			segments, size := 0, int64(0)
			for _, segment := range s.Segments {
				if segment.Last >= position {
					segments, size = segments+1, size+segment.Size
				}
			}
			if s.First() > position || segments != window.Segments || size != window.Bytes {
				rt.Fatalf("%+v begins at %d, and has %d segments of %d bytes from %d on", window, s.First(), segments, size, position)
			}
			if foreign && (s.First() != position || l.Segments[0].Seq == 1) {
				rt.Fatalf("%+v has a base of another history", window)
			}
			return
		}
	}
	rt.Fatalf("%+v is of no stretch", window)
}

// TestWindowEnds checks that a window ends no later than the base of the next window was finished, even if its last mark
// bounds its time later.
func TestWindowEnds(t *testing.T) {
	w := stored.NewWriter(t, "c", stored.LineageID(1))
	late, unmarked := func(h *segment.Header) { h.Marks[0].NotAfter = stored.At(60) }, func(h *segment.Header) { h.Marks = nil }
	segments := stored.SegmentsOf(append(w.Some(3), w.Next(late), w.Next(), w.Next(unmarked)))
	backup := func(id catalog.ID, position uint64, started, finished int) catalog.Backup {
		m := stored.ManifestOf(stored.Content, stored.At(started))
		m.ID, m.Cluster, m.Finished, m.RaftIndex, m.RaftIndexMax, m.RaftTerm = id, "c", stored.At(finished), position, position, 2
		return catalog.Backup{Manifest: m}
	}
	c := catalog.Catalog{Cluster: "c", Lineages: []catalog.Lineage{{ID: stored.LineageID(1), Segments: slices.Delete(segments, 4, 5)}}}
	c.Backups = []catalog.Backup{backup("next", 52, 8, 9), backup("slow", 51, 7, 30), backup("first", 5, 1, 2)}
	windows := c.Windows()
	if len(windows) != 2 || windows[0].Base != "first" || windows[1].Base != "slow" {
		t.Fatalf("windows %+v", windows)
	}
	got := windows[0]
	if !got.From.Time.Equal(stored.At(1).Add(time.Second/2)) || !got.To.Time.Equal(stored.At(9)) {
		t.Errorf("the first is from %s to %s, the next one's base was there at %s", got.From.Time, got.To.Time, stored.At(9))
	}
	c.Backups[2].Finished, c.Lineages[0].Segments[0].Marks = stored.At(40), nil
	got = c.Windows()[0]
	if !got.From.Time.Equal(stored.At(2).Add(time.Second / 2)) {
		t.Errorf("the first begins at %s", got.From.Time)
	}
	for i := range 4 {
		c.Lineages[0].Segments[i].Marks = nil
	}
	got = c.Windows()[0]
	if !got.From.Time.Equal(stored.At(9)) || !got.To.Time.Equal(stored.At(9)) {
		t.Errorf("the first is from %s to %s", got.From.Time, got.To.Time)
	}
}

// TestBases checks that every backup of the history that lies in a stretch is a base, newest first, and no backup of another
// history is. The exception is directly before a stretch whose beginning is lost, where no mark bounds the time.
func TestBases(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		for i, l := range w.catalog.Lineages {
			for _, s := range l.Stretches() {
				if !w.pasts[i].genuine(s.Segments[0]) || !w.pasts[i].genuine(s.Segments[len(s.Segments)-1]) {
					continue // made-up segments may fit no backup
				}
				got := w.catalog.Bases(s)
				foreign := slices.IndexFunc(got, func(b catalog.Backup) bool { return w.of[b.ID] != l.ID })
				if foreign < 0 {
					usable, doubtful := w.basesOf(l.ID, s)
					wantBases(rt, got, usable, doubtful)
					continue
				}
				if got[foreign].RaftIndex != s.First()-1 || l.Segments[0].Seq == 1 {
					rt.Fatalf("a base of %d to %d of %s is of another history: %s", s.First(), s.Last(), l.ID, got[foreign].ID)
				}
			}
		}
	})
}

// basesOf returns the backups of the lineage that lie in s, newest first.
func (w *world) basesOf(lineage string, s catalog.Stretch) (usable, doubtful []catalog.ID) {
	for _, b := range w.backups {
		switch {
		case w.of[b.ID] != lineage || b.RaftIndex < s.First()-1 || max(b.RaftIndex, b.RaftIndexMax) > s.Last():
		case b.Diverged == "" && len(b.Alarms) == 0 && len(b.Proofs) == 0:
			usable = append(usable, b.ID)
		default:
			doubtful = append(doubtful, b.ID)
		}
	}
	return usable, doubtful
}

func wantBases(rt *rapid.T, bases []catalog.Backup, usable, doubtful []catalog.ID) {
	want := usable
	if len(usable) == 0 {
		want = doubtful
	}
	got := stored.IDs(catalog.Catalog{Backups: bases})
	if !slices.Equal(got, want) {
		rt.Fatalf("bases %q, want %q", got, want)
	}
}

// TestBaseRefused checks that a backup that differs from the stretch's history in one way is not a base.
func TestBaseRefused(t *testing.T) {
	all := stored.SegmentsOf(stored.NewWriter(t, "c", stored.LineageID(1)).Some(9)) // positions 1 to 90, seconds 1 to 9, terms 2 and 3
	s := catalog.Lineage{ID: stored.LineageID(1), Segments: all}.Stretches()[0]
	good := func() catalog.Backup {
		m := stored.ManifestOf(stored.Content, stored.At(4))
		m.Cluster, m.RaftIndex, m.RaftIndexMax, m.RaftTerm = "c", 35, 37, 2
		return catalog.Backup{Manifest: m}
	}
	for what, test := range map[string]struct {
		edit func(b *catalog.Backup)
		fits bool
	}{
		"as it is":           {func(b *catalog.Backup) {}, true},
		"no upper bound":     {func(b *catalog.Backup) { b.RaftIndexMax = 0 }, true},
		"right before":       {func(b *catalog.Backup) { b.RaftIndex, b.RaftIndexMax = 0, 0 }, false}, // 0 means unknown
		"at the end":         {func(b *catalog.Backup) { b.RaftIndex, b.RaftIndexMax, b.RaftTerm = 90, 90, 3 }, true},
		"beyond the end":     {func(b *catalog.Backup) { b.RaftIndex, b.RaftIndexMax = 88, 91 }, false},
		"term not known":     {func(b *catalog.Backup) { b.RaftTerm = 0 }, true},
		"term of later":      {func(b *catalog.Backup) { b.RaftTerm = 4 }, false},
		"term of before":     {func(b *catalog.Backup) { b.RaftTerm = 1 }, false},
		"another cluster id": {func(b *catalog.Backup) { b.ClusterID = "cdf818194e3a8c33" }, false},
		"another name":       {func(b *catalog.Backup) { b.Cluster = "c1" }, false},
		"a bit early":        {func(b *catalog.Backup) { b.Started = stored.At(3).Add(-5 * time.Minute) }, true},
		"too early":          {func(b *catalog.Backup) { b.Started = stored.At(3).Add(-5*time.Minute - 1) }, false},
		"a bit late":         {func(b *catalog.Backup) { b.Started = stored.At(4).Add(5*time.Minute + 5e8) }, true},
		"too late":           {func(b *catalog.Backup) { b.Started = stored.At(4).Add(5*time.Minute + 5e8 + 1) }, false},
		"early, first ones": {func(b *catalog.Backup) {
			b.RaftIndex, b.RaftIndexMax, b.Started = 5, 5, stored.At(1).Add(-600*time.Hour)
		}, true},
		"late, first ones": {func(b *catalog.Backup) {
			b.RaftIndex, b.RaftIndexMax, b.Started = 5, 5, stored.At(1).Add(6*time.Minute)
		}, false},
	} {
		b := good()
		test.edit(&b)
		c := catalog.Catalog{Backups: []catalog.Backup{b}}
		got := len(c.Bases(s)) == 1
		if got != test.fits {
			t.Errorf("%s: a base %v", what, got)
		}
	}
}

// TestBasesFromBeforeTheAgent checks that backups from before the agent started are bases, however old. The log's first
// segments contain requests from that time and have no marks for them. A backup of another history is not a base, as its
// revision shows.
func TestBasesFromBeforeTheAgent(t *testing.T) {
	w := stored.NewWriter(t, "c", stored.LineageID(1))
	unmarked := func(h *segment.Header) { h.Marks = nil }
	begins := catalog.Lineage{ID: stored.LineageID(1), Segments: stored.SegmentsOf([]segment.Encoded{w.Next(unmarked), w.Next(unmarked), w.Next(), w.Next()})}
	after := func(l catalog.Lineage) catalog.Lineage {
		l.Segments = slices.Clone(l.Segments)
		l.Segments[0].After = &segment.After{Lineage: stored.LineageID(0), Seq: 1, Position: 3, Time: stored.At(0)}
		return l
	}
	for what, test := range map[string]struct {
		lineage  catalog.Lineage
		started  time.Time
		revision int64
		fits     bool
	}{
		"yesterday's":                          {begins, stored.At(1).Add(-24 * time.Hour), 1012, true},
		"after the mark":                       {begins, stored.At(3).Add(6 * time.Minute), 1012, false},
		"with more revisions than the mark":    {begins, stored.At(1).Add(-24 * time.Hour), 1031, false},
		"with too few to get to the mark":      {begins, stored.At(1).Add(-24 * time.Hour), 1010, false},
		"after the history before":             {after(begins), stored.At(0).Add(time.Second), 1012, true},
		"from long before the history's start": {after(begins), stored.At(1).Add(-24 * time.Hour), 1012, false},
		"of a part whose beginning is gone": {
			catalog.Lineage{ID: begins.ID, Segments: begins.Segments[1:]}, stored.At(1).Add(-24 * time.Hour), 1012, false,
		},
	} {
		m := stored.ManifestOf(stored.Content, test.started)
		m.Cluster, m.RaftIndex, m.RaftIndexMax, m.RaftTerm = "c", 12, 12, 2
		m.Revision, m.RevisionMax = test.revision, test.revision
		c := catalog.Catalog{Backups: []catalog.Backup{{Manifest: m}}, Lineages: []catalog.Lineage{test.lineage}}
		got := len(c.Windows()) == 1
		if got != test.fits {
			t.Errorf("%s: a base %v", what, got)
		}
	}
}

// TestBasesFromTheTimeOfAGap checks that a backup that was taken while the agent was down is a base of the part after the
// recorded gap if that part continues it, however long before the first mark of that part. A backup from before the gap is not.
func TestBasesFromTheTimeOfAGap(t *testing.T) {
	w := stored.NewWriter(t, "c", stored.LineageID(1))
	segments := stored.SegmentsOf(append(w.Some(2), w.Next(func(h *segment.Header) { // two hours, and positions 21 to 30, are lost
		h.First, h.Last, h.Reason, h.Written = 31, 40, "the member's log was purged", stored.At(7200)
		h.Marks = []segment.Mark{stored.MarkAt(40, 7200)}
	})))
	all := catalog.Lineage{ID: stored.LineageID(1), Segments: segments}
	begun := catalog.Lineage{ID: all.ID, Segments: segments[2:]} // what came before is unknown
	for what, test := range map[string]struct {
		lineage  catalog.Lineage
		started  time.Time
		position uint64
		revision int64
		fits     bool
	}{
		"an hour before the first mark":          {all, stored.At(3600), 35, 1035, true},
		"directly before the part":               {all, stored.At(3600), 30, 1030, true},
		"in the gap":                             {all, stored.At(3600), 29, 1029, false},
		"from long before the gap":               {all, stored.At(-3600), 35, 1035, false},
		"after the mark":                         {all, stored.At(7200 + 360), 35, 1035, false},
		"with more revisions than the mark":      {all, stored.At(3600), 35, 1041, false},
		"with too few to get to the mark":        {all, stored.At(3600), 35, 1030, false},
		"of a part with nothing known before it": {begun, stored.At(3600), 35, 1035, false},
	} {
		m := stored.ManifestOf(stored.Content, test.started)
		m.Cluster, m.RaftIndex, m.RaftIndexMax, m.RaftTerm = "c", test.position, test.position, 2
		m.Revision, m.RevisionMax = test.revision, test.revision
		c := catalog.Catalog{Backups: []catalog.Backup{{Manifest: m}}, Lineages: []catalog.Lineage{test.lineage}}
		got := len(c.Windows()) == 1
		if got != test.fits {
			t.Errorf("%s: a base %v", what, got)
		}
	}
}

// TestBaseOfTheNearerHistory checks that a backup is a base only of the history that fits its time better, if two histories
// have the same cluster id, positions and terms. A restore in place can make such histories, seconds apart.
func TestBaseOfTheNearerHistory(t *testing.T) {
	first := catalog.Lineage{ID: stored.LineageID(1), Segments: stored.SegmentsOf(stored.NewWriter(t, "c", stored.LineageID(1)).Some(9))}
	second := catalog.Lineage{ID: stored.LineageID(2)}
	const later = 30 * time.Second
	for _, s := range first.Segments {
		s.Lineage, s.Written = second.ID, s.Written.Add(later)
		s.Marks = slices.Clone(s.Marks)
		for i := range s.Marks {
			s.Marks[i].NotBefore, s.Marks[i].NotAfter = s.Marks[i].NotBefore.Add(later), s.Marks[i].NotAfter.Add(later)
		}
		second.Segments = append(second.Segments, s)
	}
	for name, skew := range map[string]time.Duration{"clocks agree": 0, "10 s late": 10 * time.Second, "10 s early": -10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			backup := func(id catalog.ID, taken time.Time) catalog.Backup {
				m := stored.ManifestOf(stored.Content, taken.Add(skew))
				m.ID, m.Cluster, m.RaftIndex, m.RaftIndexMax, m.RaftTerm = id, "c", 35, 37, 2
				return catalog.Backup{Manifest: m}
			}
			of1, of2 := backup("first", stored.At(4)), backup("second", stored.At(4).Add(later))
			c := catalog.Catalog{
				Cluster: "c", Backups: []catalog.Backup{of2, of1}, Lineages: []catalog.Lineage{first, second},
			}
			for _, l := range c.Lineages {
				want := map[string]catalog.ID{first.ID: of1.ID, second.ID: of2.ID}[l.ID]
				got := stored.IDs(catalog.Catalog{Backups: c.Bases(l.Stretches()[0])})
				if !slices.Equal(got, []catalog.ID{want}) {
					t.Errorf("bases of lineage %s: %q, want %q", l.ID, got, want)
				}
			}
		})
	}
}

// TestGaps checks that every position of a lineage is either in a stretch or in a gap.
func TestGaps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		gaps := w.catalog.Gaps()
		for i, l := range w.catalog.Lineages {
			within := slices.DeleteFunc(slices.Clone(gaps), func(g catalog.Gap) bool { return g.Lineage != l.ID || g.NextLineage != l.ID })
			stretches := l.Stretches()
			if len(stretches) != len(within)+1 && len(stretches) > 0 {
				rt.Fatalf("%d stretches and %d gaps", len(stretches), len(within))
			}
			for n, g := range within {
				a, b := stretches[n], stretches[n+1]
				known := g.From == a.Last()+1 && g.To == b.First()-1 && g.From <= g.To
				none := g.From == 0 && g.To == 0 && b.First() == a.Last()+1
				if !known && !none || g.Until.Before(g.Since) {
					rt.Fatalf("gap %+v between %d and %d", g, a.Last(), b.First())
				}
			}
			next := slices.IndexFunc(gaps, func(g catalog.Gap) bool { return g.NextLineage == l.ID && g.Lineage != l.ID })
			first := l.Segments[0]
			begins := first.Lineage == l.ID && first.After != nil
			if begins != (next >= 0) {
				rt.Fatalf("lineage %d comes after another %v, gap %d", i, begins, next)
			}
		}
	})
}

// TestGapReasons checks that a recorded gap has the recorded reason, another gap has the error of its fault, and both have
// the right bounds.
func TestGapReasons(t *testing.T) {
	w := stored.NewWriter(t, "c", stored.LineageID(1))
	all := w.Some(3)
	all = append(all, w.Next(func(h *segment.Header) {
		h.First, h.Last, h.Reason = 51, 60, "the member's log was purged"
		h.Marks[0].Position = 60
	}))
	all = append(all, w.Some(3)...)
	next := stored.NewWriter(t, "c", stored.LineageID(2))
	begun := next.Next(func(h *segment.Header) {
		h.First, h.Last, h.Reason = 101, 110, "another history"
		h.Marks = []segment.Mark{stored.MarkAt(110, 60)}
		h.Written = stored.At(60)
		h.After = &segment.After{Lineage: stored.LineageID(1), Seq: 7, Position: 90, Time: stored.At(7)}
	})
	segments := slices.Delete(stored.SegmentsOf(all), 5, 6)
	c := catalog.Catalog{Lineages: []catalog.Lineage{
		{ID: stored.LineageID(1), Segments: segments, Faults: []catalog.Fault{{Seq: 6, Upto: 6, Err: stored.ErrTest}}},
		{ID: stored.LineageID(2), Segments: []catalog.Segment{catalog.SegmentOf(begun)}},
	}}
	half := func(second int) time.Time { return stored.At(second).Add(time.Second / 2) }
	want := []catalog.Gap{
		{Kind: catalog.GapRecorded, Lineage: stored.LineageID(1), NextLineage: stored.LineageID(1), From: 31, To: 50, Since: half(3), Until: half(4), Reason: "the member's log was purged"},
		{Kind: catalog.GapLost, Lineage: stored.LineageID(1), NextLineage: stored.LineageID(1), From: 71, To: 80, Since: half(5), Until: half(7), Reason: stored.ErrTest.Error()},
		{Kind: catalog.GapRecorded, Lineage: stored.LineageID(1), NextLineage: stored.LineageID(2), From: 91, To: 100, Since: half(7), Until: half(60), Reason: "another history"},
	}
	got := c.Gaps()
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestStretchSearch checks that the searches in a stretch return the same as a walk over every mark and every segment.
func TestStretchSearch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPast(rt, 0, stored.Noon, nil)
		for _, s := range (catalog.Lineage{ID: p.id, Segments: p.segments}).Stretches() {
			var marks []segment.Mark
			for _, s := range s.Segments {
				marks = append(marks, s.Marks...)
			}
			wantAtTime(rt, s, marks)
			position := rapid.Uint64Range(0, s.Last()+5).Draw(rt, "position")
			n := s.SegmentsUpTo(position)
			if n > 0 && s.Segments[n-1].First > position || n < len(s.Segments) && s.Segments[n].First <= position {
				rt.Fatalf("%d segments for position %d", n, position)
			}
			wantForRevision(rt, s, marks)
		}
	})
}

func wantAtTime(rt *rapid.T, s catalog.Stretch, marks []segment.Mark) {
	when := stored.Noon.Add(time.Duration(rapid.IntRange(-10, 700).Draw(rt, "when")) * time.Second)
	if len(marks) > 0 && rapid.Bool().Draw(rt, "sharp") {
		when = rapid.SampledFrom(marks).Draw(rt, "mark").NotAfter
	}
	mark, next, ok := s.AtTime(when)
	past := slices.DeleteFunc(slices.Clone(marks), func(m segment.Mark) bool { return m.NotAfter.After(when) })
	if ok != (len(past) > 0) || ok && mark != past[len(past)-1] || (next != nil) != (len(past) < len(marks)) {
		rt.Fatalf("at %v: %+v, %+v, %v of %+v", when, mark, next, ok, marks)
	}
	if next != nil && *next != marks[len(past)] {
		rt.Fatalf("at %v the next is %+v", when, next)
	}
}

func wantForRevision(rt *rapid.T, s catalog.Stretch, marks []segment.Mark) {
	revision := rapid.Int64Range(1, int64(s.Last())+110).Draw(rt, "revision")
	n, known := s.ForRevision(revision)
	at := slices.IndexFunc(marks, func(m segment.Mark) bool { return m.Revision >= revision })
	if known != (at >= 0) || !known && n != len(s.Segments) {
		rt.Fatalf("%d segments for revision %d, known %v", n, revision, known)
	}
	if known && (n > 0 && s.Segments[n-1].First > marks[at].Position || n < len(s.Segments) && s.Segments[n].First <= marks[at].Position) {
		rt.Fatalf("%d segments for revision %d at position %d", n, revision, marks[at].Position)
	}
}
