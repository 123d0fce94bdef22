package plan_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

const settled = "not the requested point but the nearest restorable one"

func hasNote(p plan.Plan, words string) bool {
	return slices.ContainsFunc(p.Notes, func(n string) bool { return strings.Contains(n, words) })
}

func drawTarget(t *rapid.T, p *past) plan.Target {
	target := plan.Target{Best: rapid.Bool().Draw(t, "best")}
	if len(p.histories) > 0 && rapid.Bool().Draw(t, "in a lineage") {
		target.Lineage = lineageNumber(rapid.IntRange(0, len(p.histories)).Draw(t, "lineage")) // the last is none
	}
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 1:
		target.Revision = rapid.Int64Range(98, 130).Draw(t, "revision")
	case 2:
		target.Time = started.Add(time.Duration(rapid.IntRange(-60, 70*20).Draw(t, "minute")) * time.Minute)
	case 3:
		target.Position = rapid.SampledFrom([]uint64{0, 97}).Draw(t, "indexes or revisions") + rapid.Uint64Range(1, 33).Draw(t, "position")
	}
	return target
}

// For any repository, a plan leads to its target, or an error names the nearest point.
func TestPlanReachesItsTarget(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPast(t)
		target := drawTarget(t, p)
		planned, err := plan.New(p.catalog, target, plan.Layout{Token: "t"}, now)
		again, secondErr := plan.New(p.catalog, target, plan.Layout{Token: "t"}, now)
		one, _ := planned.Encode()
		other, _ := again.Encode()
		if !bytes.Equal(one, other) || fmt.Sprint(err) != fmt.Sprint(secondErr) {
			t.Fatal("the same input gave two plans")
		}
		if err != nil {
			p.wantNearest(t, target, err)
			return
		}
		end := p.wantWhole(t, planned)
		p.wantHonest(t, planned, end)
		p.wantTarget(t, planned, target, end)
		p.wantNoCheaperBase(t, planned)
		if hasNote(planned, settled) && !target.Best {
			t.Fatalf("it settles for less, unasked: %q", planned.Notes)
		}
	})
}

// wantWhole checks that a plan is possible by the catalog, and returns its true end.
func (p *past) wantWhole(t *rapid.T, plan plan.Plan) taken {
	base := p.of[plan.Backup.ID]
	if plan.Log == nil {
		return base
	}
	log := *plan.Log
	if hasNote(plan, "users and roles") != (log.Source == segment.Watch) {
		t.Fatalf("the log is from %s, the notes are %q", log.Source, plan.Notes)
	}
	if base.of.id != log.Lineage || base.of.source != log.Source {
		t.Fatalf("a base of %s goes with a log of %s", base.of.id, log.Lineage)
	}
	segments := p.segments(t, log)
	first, last := segments[0], segments[len(segments)-1]
	if first.First > base.position+1 {
		t.Fatalf("the base is at %d, the log begins at %d", base.position, first.First)
	}
	requests, size := 0, int64(0)
	for _, s := range segments {
		requests, size = requests+s.Requests, size+s.Size
	}
	if log.Digest != last.Digest || log.Segments != len(segments) || log.Requests != requests || log.Bytes != size {
		t.Fatalf("the log is %+v, its segments have %d requests and %d bytes", log, requests, size)
	}
	end := taken{base.of, last.Last}
	switch {
	case log.Position > 0:
		end.position = log.Position
	case log.Revision > 0:
		made, ok := base.of.made(log.Revision)
		switch {
		case log.Revision == base.of.at(base.position).revision:
			made = base.position
		case (!ok || made > last.Last) && log.Source == segment.Watch:
			t.Fatalf("revision %d is not in the log to %d", log.Revision, last.Last)
		case !ok || made > last.Last: // no mark shows the position; the run would report that
			t.SkipNow()
		}
		end.position = made
	}
	there := log.Revision > 0 && end.position == base.position // nothing is replayed then
	_, beyond := plan.Backup.Span(log.Source)
	if beyond > end.position && log.Revision == 0 || last.Last < end.position && !there ||
		plan.Backup.RevisionMax > log.Revision && log.Revision > 0 {
		t.Fatalf("base %+v and log %+v do not lead to %d", base, log, end.position)
	}
	return end
}

// segments returns the plan's segments, and fails the test unless they are consecutive.
func (p *past) segments(t *rapid.T, log plan.Log) (segments []catalog.Segment) {
	for _, s := range p.all() {
		for _, one := range s.Segments {
			if one.Lineage == log.Lineage && one.Seq >= log.First && one.Seq <= log.Last {
				segments = append(segments, one)
			}
		}
	}
	for i, s := range segments {
		if s.Seq != log.First+uint64(i) || i > 0 && s.First != segments[i-1].Last+1 {
			t.Fatalf("the log has a hole before segment %d", s.Seq)
		}
	}
	if len(segments) == 0 || segments[len(segments)-1].Seq != log.Last {
		t.Fatalf("the log %+v is not in the catalog", log)
	}
	return segments
}

// wantHonest compares the end that a plan promises with the true state.
func (p *past) wantHonest(t *rapid.T, plan plan.Plan, end taken) {
	r, is := plan.Reach, end.of.at(end.position)
	if is.since.After(r.NotAfter) {
		t.Fatalf("it ends with a write of %s, it says that none is later than %s", is.since, r.NotAfter)
	}
	if end.position < end.of.last() && end.of.at(end.position+1).since.Before(r.NotBefore) {
		t.Fatalf("it leaves out a write of %s, it says that none is before %s", end.of.at(end.position+1).since, r.NotBefore)
	}
	if r.Revision != 0 && r.Revision != is.revision || r.Position != 0 && r.Position != end.position {
		t.Fatalf("it says that it ends at %+v, it ends at %d, %+v", r, end.position, is)
	}
}

func (p *past) wantTarget(t *rapid.T, planned plan.Plan, target plan.Target, end taken) {
	less := hasNote(planned, settled)
	is := end.of.at(end.position)
	switch {
	case target.Lineage != "" && end.of.id != target.Lineage:
		t.Fatalf("asked for lineage %s, got %s", target.Lineage, end.of.id)
	case target.Revision > 0 && (is.revision > target.Revision || is.revision < target.Revision && !less):
		t.Fatalf("asked for revision %d, got %d (settled: %v)", target.Revision, is.revision, less)
	case target.Position > 0 && (end.position > target.Position || end.position < target.Position && !less):
		t.Fatalf("asked for position %d, got %d (settled: %v)", target.Position, end.position, less)
	case !target.Time.IsZero() && planned.Reach.NotAfter.After(target.Time):
		t.Fatalf("asked for %s, got %s", target.Time, planned.Reach.NotAfter)
	}
	if !target.Time.IsZero() {
		p.wantNothingNearer(t, planned, target, end)
	}
	if target == (plan.Target{Best: target.Best}) && !less {
		p.wantNewest(t, planned, end)
	}
}

// wantNothingNearer checks that no mark or backup after the plan's end is certainly at or before the target's time.
func (p *past) wantNothingNearer(t *rapid.T, plan plan.Plan, target plan.Target, end taken) {
	for _, s := range p.all() {
		bases := p.catalog.Bases(s)
		if len(bases) == 0 || target.Lineage != "" && s.Lineage != target.Lineage {
			continue
		}
		for _, b := range bases {
			begin, _ := b.Span(s.Source())
			at := (taken{p.history(s.Lineage), begin})
			if !b.Finished.After(target.Time) && p.order(at, end) > 0 {
				t.Fatalf("backup %s is nearer to %s: bases %v plan %s %+v %+v notes %q", b.ID, target.Time, len(bases), plan.Backup.ID, plan.Log, plan.Reach, plan.Notes)
			}
		}
		for _, one := range s.Segments {
			for _, m := range one.Marks {
				has := func(b catalog.Backup) bool {
					_, end := b.Span(s.Source())
					return end <= m.Position
				}
				if !m.NotAfter.After(target.Time) && slices.ContainsFunc(bases, has) && p.order(taken{p.history(s.Lineage), m.Position}, end) > 0 {
					t.Fatalf("the mark %+v is nearer to %s", m, target.Time)
				}
			}
		}
	}
}

// wantNewest checks that the plan notes every known point that it does not reach.
func (p *past) wantNewest(t *rapid.T, plan plan.Plan, end taken) {
	said := hasNote(plan, "the newest known point is") || hasNote(plan, "this backup is restored without it") || hasNote(plan, "are not archived")
	if plan.Log == nil && said {
		return
	}
	for _, b := range p.catalog.Backups {
		begin, _ := b.Span(p.of[b.ID].of.source)
		at := (taken{p.of[b.ID].of, begin})
		if p.order(at, end) > 0 {
			t.Fatalf("backup %s is newer", b.ID)
		}
	}
	for _, s := range p.all() {
		if p.order(taken{p.history(s.Lineage), s.Last()}, end) > 0 {
			t.Fatalf("the log goes on to %d of lineage %s", s.Last(), s.Lineage)
		}
	}
	for _, d := range p.catalog.Damaged {
		at := p.of[d.ID]
		if p.order(at, end) > 0 {
			t.Fatalf("backup %s is newer, and damaged", d.ID)
		}
	}
}

// wantNoCheaperBase: no base for the same log is both smaller and nearer.
func (p *past) wantNoCheaperBase(t *rapid.T, plan plan.Plan) {
	if plan.Log == nil {
		return
	}
	for _, s := range p.all() {
		if s.Lineage != plan.Log.Lineage || s.Segments[0].Seq > plan.Log.First || s.Segments[len(s.Segments)-1].Seq < plan.Log.Last {
			continue
		}
		for _, b := range p.catalog.Bases(s) {
			from, to := b.Span(s.Source())
			least, _ := plan.Backup.Span(s.Source())
			before := to <= plan.Log.Position || plan.Log.Position == 0 && plan.Log.Revision == 0 || b.RevisionMax <= plan.Log.Revision
			if before && b.Plain.Size < plan.Backup.Plain.Size && from >= least {
				t.Fatalf("backup %s is smaller and nearer than %s", b.ID, plan.Backup.ID)
			}
		}
	}
}

// wantNearest: an error has the right kind, and the point that it names can be planned.
func (p *past) wantNearest(t *rapid.T, target plan.Target, err error) {
	var unreachable *plan.UnreachableError
	if !errors.As(err, &unreachable) {
		isEmpty := len(p.catalog.Backups) == 0 && len(p.catalog.Lineages) == 0
		if !errors.Is(err, catalog.ErrNotFound) && !errors.Is(err, catalog.ErrDamaged) || target.Revision > 0 && !isEmpty {
			t.Fatalf("error %v", err)
		}
		return
	}
	if !errors.Is(err, catalog.ErrNotFound) {
		t.Fatalf("error %v is no ErrNotFound", err)
	}
	if target.Best && unreachable.Nearest != "" {
		t.Fatalf("the best was asked for, and %v", err)
	}
	target.Best = true
	best, err := plan.New(p.catalog, target, plan.Layout{Token: "t"}, now)
	if unreachable.Nearest == "" {
		if err == nil {
			t.Fatalf("%v: it names no nearest, and there is %+v, %+v", unreachable, best.Backup.ID, best.Reach)
		}
		return
	}
	if err != nil {
		t.Fatalf("%v: and it cannot be planned: %v", unreachable, err)
	}
	p.wantHonest(t, best, p.wantWhole(t, best))
	name := string(best.Backup.ID)
	switch {
	case best.Log != nil && best.Reach.Revision > 0:
		name = fmt.Sprintf("revision %d", best.Reach.Revision)
	case best.Log != nil:
		name = fmt.Sprintf("position %d", best.Reach.Position)
	}
	if !strings.Contains(unreachable.Nearest, name) {
		t.Fatalf("it names %s, and plans %s", unreachable.Nearest, name)
	}
}

// Each revision, position and time of a window in dr list can be restored.
func TestEveryPointOfAWindowCanBePlanned(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPast(t)
		for _, w := range p.catalog.Windows() {
			targets := []plan.Target{{Time: w.From.Time}, {Time: w.To.Time}}
			between := w.To.Time.Sub(w.From.Time)
			if between > 0 {
				targets = append(targets, plan.Target{Time: w.From.Time.Add(time.Duration(rapid.Int64Range(0, int64(between)).Draw(t, "moment")))})
			}
			for n := w.From.Revision; n <= w.To.Revision; n++ {
				targets = append(targets, plan.Target{Revision: n})
			}
			for n := w.From.Position; n <= w.To.Position; n++ {
				targets = append(targets, plan.Target{Position: n})
			}
			for _, target := range targets {
				target.Lineage = w.Lineage
				_, err := plan.New(p.catalog, target, plan.Layout{Token: "t"}, now)
				if err != nil {
					t.Fatalf("window %+v, target %+v: %v", w, target, err)
				}
			}
		}
	})
}

// An idle cluster writes no log. A later backup at the same revision shows that the log is complete.
func TestLogOfAClusterAtRest(t *testing.T) {
	h := &history{id: lineageNumber(0), source: segment.Watch, first: 100, states: []state{{100, started}, {101, started.Add(step)}}}
	p := &past{histories: []*history{h}}
	s := p.segment(h, 1, 101, 101)
	s.Marks = []segment.Mark{{Position: 101, Revision: 101, Interval: segment.Interval{NotBefore: h.states[1].since, NotAfter: h.states[1].since}}}
	taken := func(revision int64, at time.Time) catalog.Backup {
		return changed(fixedBackup(), func(b *catalog.Backup) {
			b.ID, b.Started, b.Finished = catalog.NewID(at, revision), at, at.Add(time.Second)
			b.Revision, b.RevisionMax, b.Alarms, b.NoQuorum, b.Diverged = revision, revision, nil, false, ""
		})
	}
	late := taken(101, s.Written.Add(5*time.Minute))
	late.Plain.Size <<= 10 // it costs more than to replay
	cat := catalogOf(late, taken(100, started.Add(time.Minute)))
	cat.Lineages = []catalog.Lineage{{ID: h.id, Segments: []catalog.Segment{s}}}
	planned, err := plan.New(cat, plan.Target{}, plan.Layout{Token: "t"}, now)
	if err != nil {
		t.Fatal(err)
	}
	r := planned.Reach
	if planned.Log == nil || !r.NotBefore.Equal(late.Started) || !r.NotAfter.Equal(late.Started) {
		t.Errorf("what was written by %s is there, and the plan says %+v, %q", late.Started, r, planned.Notes)
	}
	if hasNote(planned, "newest known point") {
		t.Errorf("nothing is left out, and the plan says %q", planned.Notes)
	}
	cat.Backups[0].NoQuorum = true
	planned, err = plan.New(cat, plan.Target{}, plan.Layout{Token: "t"}, now)
	if err != nil || planned.Log == nil || !planned.Reach.NotBefore.Before(late.Started) {
		t.Errorf("a member that was alone knows nothing of what others were told, and the plan says %+v, %v", planned.Reach, err)
	}
}

// A doubtful backup leads to the points before the first good one: a doubtful route, with a note, is better than none. To all others
// the good one leads.
func TestDoubtfulBackupLeadsWhereNoGoodOneDoes(t *testing.T) {
	h := &history{id: lineageNumber(0), source: segment.Watch, first: 100}
	for i := range 5 {
		h.states = append(h.states, state{100 + int64(i), started.Add(time.Duration(i) * step)})
	}
	p := &past{histories: []*history{h}}
	s := p.segment(h, 1, 101, 104)
	for _, n := range []uint64{102, 104} {
		at := h.at(n).since
		s.Marks = append(s.Marks, segment.Mark{Position: n, Revision: int64(n), Interval: segment.Interval{NotBefore: at, NotAfter: at}})
	}
	taken := func(revision int64, diverged string) catalog.Backup {
		return changed(fixedBackup(), func(b *catalog.Backup) {
			b.Started = h.at(uint64(revision)).since.Add(time.Second)
			b.ID, b.Finished = catalog.NewID(b.Started, revision), b.Started.Add(time.Second)
			b.Revision, b.RevisionMax, b.Alarms, b.NoQuorum, b.Diverged = revision, revision, nil, false, diverged
		})
	}
	good, doubtful := taken(103, ""), taken(100, "m3 differs")
	good.Plain.Size <<= 10 // it costs more than to replay
	good.Revision = 102    // or 103: it is after the mark of 102, if not by its number
	cat := catalogOf(good, doubtful)
	cat.Lineages = []catalog.Lineage{{ID: h.id, Segments: []catalog.Segment{s}}}
	for name, test := range map[string]struct {
		target   plan.Target
		base     catalog.ID
		revision int64
	}{
		"revision before the good one":      {plan.Target{Revision: 102}, doubtful.ID, 102},
		"position before the good one":      {plan.Target{Position: 102}, doubtful.ID, 102},
		"time before the good one":          {plan.Target{Time: h.at(102).since}, doubtful.ID, 102},
		"time right after the doubtful one": {plan.Target{Time: doubtful.Finished}, doubtful.ID, 0},
		"in its lineage":                    {plan.Target{Revision: 102, Lineage: h.id}, doubtful.ID, 102},
		"time of the good one":              {plan.Target{Time: good.Finished}, good.ID, 0},
		"revision after the good one":       {plan.Target{Revision: 104}, good.ID, 104},
		"time after the good one":           {plan.Target{Time: h.at(104).since}, good.ID, 104},
		"all":                               {plan.Target{}, good.ID, 104},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := plan.New(cat, test.target, plan.Layout{Token: "t"}, now)
			if err != nil {
				t.Fatal(err)
			}
			if plan.Backup.ID != test.base || plan.Reach.Revision != test.revision {
				t.Errorf("backup %s, revision %d, want %s and %d", plan.Backup.ID, plan.Reach.Revision, test.base, test.revision)
			}
			if hasNote(plan, "m3 differs") != (test.base == doubtful.ID) {
				t.Errorf("backup %s, notes %q", plan.Backup.ID, plan.Notes)
			}
		})
	}
}
