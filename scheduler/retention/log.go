package retention

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// stretch is a run of segments without a gap, with the backups that it continues from.
type stretch struct {
	catalog.Stretch
	lineage int          // index in the catalog
	until   time.Time    // time of the last known state
	newest  bool         // an archiver may append to it
	bases   []*candidate // oldest first; none if the stretch is of no use
	bytes   []int64      // bytes[i] is the total size of the first i segments

	doubtful bool // its history is not the cluster's own
}

// readLog sets k.log.
func (k *keeping) readLog() {
	for i, l := range k.catalog.Lineages {
		for _, s := range l.Stretches() {
			last := s.Segments[len(s.Segments)-1]
			read := &stretch{Stretch: s, lineage: i, until: last.Written, bases: k.basesOf(s), bytes: []int64{0}}
			m, ok := s.LastMark()
			if ok {
				read.until = m.NotAfter
			}
			for _, segment := range s.Segments {
				read.bytes = append(read.bytes, read.bytes[len(read.bytes)-1]+segment.Size)
			}
			read.doubtful = k.isDoubtful(read)
			k.log = append(k.log, read)
		}
	}
	n := len(k.log)
	if n > 0 {
		k.log[n-1].newest = true
	}
}

// isDoubtful reports whether the history of s is not the cluster's own, by its bases or, without a base, by its cluster ID.
func (k *keeping) isDoubtful(s *stretch) bool {
	if len(s.bases) > 0 {
		return !slices.ContainsFunc(s.bases, func(c *candidate) bool { return !c.doubtful })
	}
	isOwn := func(h catalog.History) bool {
		return !h.Doubtful && catalog.SameClusterID(h.ClusterID, s.Segments[0].ClusterID)
	}
	return slices.ContainsFunc(k.histories, func(h catalog.History) bool { return h.Doubtful }) && !slices.ContainsFunc(k.histories, isOwn)
}

// basesOf returns the bases of s, oldest first.
func (k *keeping) basesOf(s catalog.Stretch) (bases []*candidate) {
	for _, b := range k.catalog.Bases(s) {
		bases = append(bases, k.find(b.ID))
	}
	slices.SortFunc(bases, func(a, b *candidate) int {
		_, toA := a.Span(s.Source())
		_, toB := b.Span(s.Source())
		return cmp.Or(cmp.Compare(toA, toB), a.Finished.Compare(b.Finished), cmp.Compare(a.ID, b.ID))
	})
	return bases
}

// windowBase returns the base from which every point of s after begins can be restored: the newest that finished by then, if
// possible a good one; if none had finished, the oldest. It returns nil if s has no base, or ends before begins.
func (s *stretch) windowBase(begins time.Time) *candidate {
	if len(s.bases) == 0 || s.until.Before(begins) {
		return nil
	}
	var newest *candidate
	for _, c := range slices.Backward(s.bases) {
		switch {
		case c.Finished.After(begins):
		case c.doubt == "":
			return c
		case newest == nil:
			newest = c
		}
	}
	return cmp.Or(newest, s.bases[0])
}

// removable returns the number n of segments to remove from the start of s, and why. A folded segment stays or goes as a whole.
func (k *keeping) removable(s *stretch) (n int, reason string) {
	switch base := k.baseOf(s); {
	case base != nil:
		n, reason = s.from(base.Backup), "it is older than "+string(base.ID)+", the oldest kept base of the log"
		if k.policy.Window > 0 && !base.Finished.After(k.windowBegins()) {
			reason = "it is older than the window of " + Span(k.policy.Window) + ", whose base is " + string(base.ID)
		}
	case len(s.bases) == 0 && !s.until.Before(k.oldestUse()): // n is 0: a base may still appear
	default:
		n, reason = len(s.Segments), "no kept backup is a base for it"
	}
	if s.newest {
		n = min(n, len(s.Segments)-1) // an archiver appends to it
	}
	return n, reason
}

// baseOf returns the oldest base for which s is kept, or nil.
func (k *keeping) baseOf(s *stretch) *candidate {
	if len(k.good) == 0 && len(s.bases) > 0 {
		return s.bases[0]
	}
	if k.policy.Window > 0 {
		return s.windowBase(k.windowBegins())
	}
	i := slices.IndexFunc(s.bases, (*candidate).kept)
	if i >= 0 {
		return s.bases[i]
	}
	return nil
}

// oldestUse returns the time before which a log without a base is of no use.
func (k *keeping) oldestUse() (t time.Time) {
	if k.policy.Window > 0 {
		return k.windowBegins()
	}
	for _, c := range slices.Backward(k.good) {
		if c.kept() {
			return c.Started
		}
	}
	return t
}

// from returns how many segments at the start of s a restore from b does not need. It needs the segment with b's own position,
// and a mark before that position, which proves that b belongs to this history.
func (s *stretch) from(b catalog.Backup) int {
	position, _ := b.Span(s.Source())
	i := max(0, s.SegmentsUpTo(position)-1)
	for i > 0 && position >= s.Segments[i].First && !hasMarkBefore(s.Segments[i], position) {
		i--
	}
	return i
}

func hasMarkBefore(s catalog.Segment, position uint64) bool {
	return len(s.Marks) > 0 && s.Marks[0].Position < position
}

// front is the boundary between the segments of a lineage that go and those that stay.
type front struct {
	seq    uint64 // of the first segment that stays; if none stays, the last seq plus 1
	reason string // why the segments before it go
}

// fronts returns the front of each lineage, by its index in the catalog.
func (k *keeping) fronts() map[int]front {
	fronts := map[int]front{}
	found := map[int]bool{}
	for _, s := range k.log {
		if found[s.lineage] {
			continue
		}
		n, reason := k.removable(s)
		f := front{s.Segments[len(s.Segments)-1].Seq + 1, reason}
		found[s.lineage] = n < len(s.Segments)
		if found[s.lineage] {
			f.seq = s.Segments[n].FirstSeq()
		}
		before := fronts[s.lineage]
		if f.reason == "" || n == 0 {
			f.reason = before.reason
		}
		fronts[s.lineage] = f
	}
	return fronts
}

// cuts returns the segments to remove from each lineage.
func (k *keeping) cuts() []Cut {
	var cuts []Cut
	fronts := k.fronts()
	for i, l := range k.catalog.Lineages {
		c := Cut{Lineage: l.ID, Reason: fronts[i].reason}
		for _, s := range l.Segments {
			if s.Seq < fronts[i].seq {
				c.Upto = max(c.Upto, s.Seq)
				c.Segments += s.Count()
				c.Bytes += s.Size
			}
		}
		if c.Segments > 0 {
			cuts = append(cuts, c)
		}
	}
	return cuts
}

// logBytes returns the bytes of the segments that stay, and of all.
func (k *keeping) logBytes() (kept, all int64) {
	return k.bytesOf(k.log)
}

// ownLogBytes returns the bytes of the segments of the cluster's own histories that stay.
func (k *keeping) ownLogBytes() int64 {
	kept, _ := k.bytesOf(slices.DeleteFunc(slices.Clone(k.log), func(s *stretch) bool { return s.doubtful }))
	return kept
}

func (k *keeping) bytesOf(stretches []*stretch) (kept, all int64) {
	fronts := k.fronts()
	for _, s := range stretches {
		first := sort.Search(len(s.Segments), func(i int) bool { return s.Segments[i].Seq >= fronts[s.lineage].seq })
		total := s.bytes[len(s.Segments)]
		kept += total - s.bytes[first]
		all += total
	}
	return kept, all
}
