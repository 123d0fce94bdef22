package plan_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// history is the true history of a cluster: consecutive positions, each with a time.
type history struct {
	id     string
	source segment.Source // of its log, and so of its positions
	first  uint64         // the state right after it is where this history begins
	states []state
}

// state is the cluster right after a position.
type state struct {
	revision int64
	since    time.Time
}

// step lies between two positions: more than the clocks of the repository may differ.
const step = 20 * time.Minute

func (h *history) last() uint64 { return h.first + uint64(len(h.states)) - 1 }

func (h *history) at(position uint64) state { return h.states[position-h.first] }

// made returns the position that made a revision; false if this history did not make it.
func (h *history) made(revision int64) (uint64, bool) {
	for i, s := range h.states[1:] {
		if s.revision == revision && h.states[i].revision < revision {
			return h.first + uint64(i) + 1, true
		}
	}
	return 0, false
}

// past contains all true histories of a cluster, and the catalog of its repository.
type past struct {
	histories []*history // oldest first
	catalog   catalog.Catalog
	of        map[catalog.ID]taken // the true position of each backup
}

// taken is the true position of a backup.
type taken struct {
	of       *history
	position uint64
}

func (p *past) history(id string) *history {
	i := slices.IndexFunc(p.histories, func(h *history) bool { return h.id == id })
	return p.histories[i]
}

// lineageNumber returns the id of the nth lineage.
func lineageNumber(n int) string { return fmt.Sprintf("%032x", 0xa0+n) }

func drawPast(t *rapid.T) *past {
	p := &past{catalog: catalog.Catalog{Cluster: clusterName}, of: map[catalog.ID]taken{}}
	begun, revision := started, int64(100)
	for n := range rapid.IntRange(0, 3).Draw(t, "histories") {
		h := drawHistory(t, lineageNumber(n), revision, begun)
		begun = begun.Add(time.Duration(len(h.states)) * step)
		p.histories = append(p.histories, h)
		p.catalog.Lineages = append(p.catalog.Lineages, p.drawLog(t, h))
		for range rapid.IntRange(0, 4).Draw(t, "backups") {
			p.drawBackup(t, h)
		}
		begun = begun.Add(12 * step)                                                            // no backup may fit the other history by its time
		revision = h.states[rapid.IntRange(0, len(h.states)-1).Draw(t, "restored to")].revision // the next history branches off here
	}
	slices.SortFunc(p.catalog.Backups, func(a, b catalog.Backup) int { return b.Started.Compare(a.Started) })
	slices.SortFunc(p.catalog.Damaged, func(a, b catalog.Damage) int { return cmp.Compare(b.ID, a.ID) })
	return p
}

// drawHistory begins with a revision. A request may make none; where positions are revisions each makes one.
func drawHistory(t *rapid.T, id string, revision int64, begun time.Time) *history {
	h := &history{id: id, source: rapid.SampledFrom([]segment.Source{segment.WAL, segment.Watch}).Draw(t, "source")}
	least := int64(1)
	h.first = uint64(revision)
	if h.source == segment.WAL {
		h.first, least = rapid.Uint64Range(0, 5).Draw(t, "first"), 0
	}
	for range rapid.IntRange(2, 20).Draw(t, "positions") + 1 {
		h.states = append(h.states, state{revision, begun})
		revision, begun = revision+rapid.Int64Range(least, 1).Draw(t, "write"), begun.Add(step)
	}
	return h
}

// drawLog returns the log of h as an archiver stored it, with known gaps and with segments that were lost later.
func (p *past) drawLog(t *rapid.T, h *history) catalog.Lineage {
	l := catalog.Lineage{ID: h.id}
	var before *catalog.Segment
	var mark segment.Mark
	for from, seq := h.first+1, uint64(1); from <= h.last(); seq++ {
		s := p.segment(h, seq, from, min(h.last(), from+rapid.Uint64Range(0, 5).Draw(t, "length")))
		if before != nil {
			s.Previous = before.Digest
		}
		s.Requests = int(s.Last-s.First) + 1 + rapid.IntRange(0, 3).Draw(t, "others")*100_000
		mark = drawMarks(t, h, &s, mark)
		if before != nil && before.Last+1 < s.First {
			s.Reason = "the member's log was gone"
		}
		from, before = s.Last+1, &s
		switch fate := rapid.IntRange(0, 9).Draw(t, "fate"); {
		case fate == 0:
			from += rapid.Uint64Range(1, 4).Draw(t, "lost")
			l.Segments = append(l.Segments, s)
		case fate == 1 && seq > 1: // not the first segment: it names the history before it; without that name a backup of that history fits by all its numbers
			l.Faults = append(l.Faults, catalog.Fault{
				Key: "key", Seq: seq, Upto: seq, First: s.First, Last: s.Last, Err: fmt.Errorf("key: %w", catalog.ErrNotFound),
			})
		default:
			l.Segments = append(l.Segments, s)
		}
	}
	return l
}

func (p *past) segment(h *history, seq, first, last uint64) catalog.Segment {
	s := catalog.Segment{Digest: fmt.Sprintf("%s%032x", h.id, seq), Size: int64(1000 + seq)}
	s.Cluster, s.ClusterID, s.Lineage, s.Seq = clusterName, "cafe", h.id, seq
	s.Source, s.First, s.Last, s.Written = h.source, first, last, h.at(last).since.Add(step-time.Minute)
	s.End = segment.End{Position: last, Term: 2}
	if h.source == segment.Watch {
		s.End.Term = 0
	}
	n := len(p.histories)
	if seq == 1 && n > 1 {
		s.Reason = "another history"
		s.After = &segment.After{Lineage: p.histories[n-2].id, Seq: 1, Position: 1, Time: h.states[0].since}
	}
	return s
}

// drawMarks adds up to two marks to s, with the member's state at some time. It returns the last mark.
func drawMarks(t *rapid.T, h *history, s *catalog.Segment, last segment.Mark) segment.Mark {
	positions := rapid.SliceOfN(rapid.Uint64Range(s.First-1, s.Last), 0, 2).Draw(t, "marks")
	slices.Sort(positions)
	for i, position := range positions {
		if position < last.Position {
			continue
		}
		asked := h.at(position).since.Add(time.Duration(1+i) * 4 * time.Minute)
		m := segment.Mark{Position: position, Interval: segment.Interval{
			NotBefore: asked.Add(-rapid.SampledFrom([]time.Duration{0, time.Minute, 3 * step}).Draw(t, "early")),
			NotAfter:  asked.Add(rapid.SampledFrom([]time.Duration{0, time.Minute, 2 * step}).Draw(t, "late")),
		}}
		if h.source == segment.Watch || rapid.IntRange(0, 3).Draw(t, "revision known") > 0 {
			m.Revision = h.at(position).revision
		}
		if m.NotBefore.Before(last.NotBefore) {
			m.NotBefore = last.NotBefore
		}
		if m.NotAfter.Before(last.NotAfter) {
			m.NotAfter = last.NotAfter
		}
		if s.Written.Before(m.NotAfter) {
			s.Written = m.NotAfter
		}
		s.Marks, last = append(s.Marks, m), m
	}
	return last
}

// drawBackup adds a backup from some time in h. Its manifest contains only bounds of its revision and time.
func (p *past) drawBackup(t *rapid.T, h *history) {
	index := rapid.Uint64Range(max(1, h.first), h.last()).Draw(t, "index")
	ahead := func() uint64 { return rapid.Uint64Range(0, 1).Draw(t, "meanwhile") }
	real := min(h.last(), index+ahead())
	upper := min(h.last(), real+ahead())
	b := fixedBackup()
	b.Auth, b.Kubernetes, b.KubernetesEncrypted, b.Alarms, b.NoQuorum, b.Diverged = false, false, false, nil, false, ""
	b.Members = b.Members[:3]
	b.Started = h.at(index).since.Add(5*time.Minute + time.Duration(len(p.of))*time.Second)
	b.Finished = h.at(upper).since.Add(8 * time.Minute)
	b.RaftTerm, b.RaftIndex, b.RaftIndexMax = 2, index, upper
	if h.source == segment.Watch {
		other := rapid.Uint64Range(1, 300).Draw(t, "raft index")
		b.RaftIndex, b.RaftIndexMax = other, other+upper-index
	}
	b.Revision, b.RevisionMax = h.at(index).revision, h.at(upper).revision
	b.ID = catalog.NewID(b.Started, b.Revision)
	b.Plain.Size = rapid.Int64Range(1, 4).Draw(t, "GiB") << 30
	p.of[b.ID] = taken{h, real}
	switch rapid.IntRange(0, 7).Draw(t, "state") {
	case 0:
		p.catalog.Damaged = append(p.catalog.Damaged,
			catalog.Damage{ID: b.ID, Err: fmt.Errorf("%s: %w: cut off", b.ID, catalog.ErrDamaged)})
		return
	case 1:
		b.Proofs = []catalog.Proof{{Backup: b.ID, Verdict: catalog.Failed, Finding: "page 7 is bad"}}
	}
	p.catalog.Backups = append(p.catalog.Backups, b)
}

// all returns the stretches of the log, oldest first.
func (p *past) all() (stretches []catalog.Stretch) {
	for _, l := range p.catalog.Lineages {
		stretches = append(stretches, l.Stretches()...)
	}
	return stretches
}

// order compares two positions in time, of any histories.
func (p *past) order(a, b taken) int {
	return cmp.Or(strings.Compare(a.of.id, b.of.id), cmp.Compare(a.position, b.position))
}
