package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Lineage is the stored log of one history of a cluster. Each of its Stretches can be replayed without a gap.
type Lineage struct {
	ID       string
	Segments []Segment // those whose header is valid and matches the segment's name; ascending by Seq
	Faults   []Fault   // ascending by Seq
	// Pruned is the seq of the last segment that was pruned; 0 if none was. Pruned segments are neither in Segments nor in
	// Faults.
	Pruned uint64
}

// Segment describes one object of the log by its header. A folded Segment describes a run of such objects.
type Segment struct {
	segment.Header
	Digest string // of the header's document; equals Previous of the next segment
	Size   int64  // of the object, in bytes
	// Folded is the number of segments directly before this one that it includes; 0 for a single segment. First, Requests, Size
	// and Hashes then cover all of them, and Marks contains about one mark a minute.
	Folded uint64
}

// FirstSeq returns the seq of the first segment that s includes.
func (s Segment) FirstSeq() uint64 { return s.Seq - s.Folded }

// Count returns the number of segments that s includes, at least 1.
func (s Segment) Count() int { return 1 + int(s.Folded) }

// SegmentOf returns the Segment that describes e once it is stored.
func SegmentOf(e segment.Encoded) Segment {
	return Segment{Header: e.Header, Digest: e.Digest, Size: int64(len(e.Bytes))}
}

// Fault is a segment, or a run of segments, that cannot be used. Err names the key. It matches ErrNotFound if the segment is
// missing, and ErrDamaged if it is damaged, is a duplicate, belongs elsewhere or breaks the chain of digests. A tombstone or
// an index that cannot be used is a Fault with Seq 0.
type Fault struct {
	Key   string // of the first segment
	Seq   uint64 // of the first segment
	Upto  uint64 // seq of the last segment; equals Seq if there is only one
	First uint64 // the covered positions First to Last, both inclusive; 0 if unknown
	Last  uint64
	Err   error
}

// Stretch is a run of at least one segment without a gap: seqs, positions and the chain of digests are unbroken.
type Stretch struct {
	Lineage  string
	Segments []Segment
	after    time.Time // the cluster reached the first segment after this time; zero if unknown
}

// Stretches splits l at its gaps and returns the runs of segments between them, oldest first. Segments that are missing,
// damaged or duplicates, belong elsewhere or break the chain are in none of them.
func (l Lineage) Stretches() []Stretch {
	kept, _ := l.partition()
	var stretches []Stretch
	var after time.Time
	if len(kept) > 0 && kept[0].After != nil {
		after = kept[0].After.Time
	}
	for start, i := 0, 1; i <= len(kept); i++ {
		if i == len(kept) || !joins(&kept[i-1], &kept[i]) {
			s := Stretch{Lineage: l.ID, Segments: kept[start:i:i], after: after}
			stretches = append(stretches, s)
			start = i
			m, ok := s.LastMark()
			if ok {
				after = m.NotBefore
			}
		}
	}
	return stretches
}

// joins reports whether there is no gap between a and b, two neighbors among the segments that partition kept.
func joins(a, b *Segment) bool { return b.FirstSeq() == a.Seq+1 && b.First == a.Last+1 }

// partition separates the segments that belong to this history from those that do not.
func (l Lineage) partition() (kept []Segment, misfits []Fault) {
	kept = l.Segments[:0:0]
	var end tip
	for i := range l.Segments {
		s := &l.Segments[i]
		switch err := end.check(l.ID, s); {
		case err != nil:
			misfits = append(misfits, misfitFault(s, err))
			continue
		case len(misfits) == 0:
			kept = l.Segments[: i+1 : i+1] // shares the array: a week of the log has half a GB of segments
		default:
			kept = append(kept, *s)
		}
		end.move(s)
	}
	return kept, misfits
}

// misfitFault returns the Fault of s, for which tip.check returned err.
func misfitFault(s *Segment, err error) Fault {
	key := SegmentKey(s.Cluster, s.Lineage, s.FirstSeq())
	return Fault{
		Key: key, Seq: s.FirstSeq(), Upto: s.Seq, First: s.First, Last: s.Last,
		Err: fmt.Errorf("%s: %w: %w", key, ErrDamaged, err),
	}
}

// tip is the end of the segments that partition has kept so far.
type tip struct {
	last *Segment      // nil if there is none yet
	mark *segment.Mark // the last mark; nil if there is none yet
}

// move makes s the last segment.
func (t *tip) move(s *Segment) {
	t.last = s
	n := len(s.Marks)
	if n > 0 {
		t.mark = &s.Marks[n-1]
	}
}

// check returns an error unless s can follow the tip. After a gap the digest of the segment before s is unknown, but
// seqs, positions, terms and marks must still ascend.
func (t *tip) check(lineage string, s *Segment) error {
	if s.Lineage != lineage {
		return fmt.Errorf("it belongs to lineage %s", s.Lineage)
	}
	if t.last == nil {
		return nil
	}
	seq := s.FirstSeq()
	switch last := t.last; {
	case seq <= last.Seq:
		return fmt.Errorf("seq %d follows seq %d: it is a duplicate", seq, last.Seq)
	case s.Cluster != last.Cluster || !SameClusterID(s.ClusterID, last.ClusterID):
		return fmt.Errorf("it is of cluster %s (%s), but the segment before it is of %s (%s)",
			s.Cluster, s.ClusterID, last.Cluster, last.ClusterID)
	case s.Source != last.Source:
		return fmt.Errorf("its source is %s, but that of the segment before it is %s", s.Source, last.Source)
	case seq == last.Seq+1 && s.Previous != last.Digest:
		return fmt.Errorf("it continues a segment with header digest %.12s, but that of the segment before it is %.12s", s.Previous, last.Digest)
	case s.First <= last.Last:
		return fmt.Errorf("it begins at position %d, but the segment before it ends at %d", s.First, last.Last)
	case seq == last.Seq+1 && s.First != last.Last+1 && s.Reason == "":
		return fmt.Errorf("positions %d to %d are missing before it, and it records no reason", last.Last+1, s.First-1)
	case s.End.Term < last.End.Term:
		return fmt.Errorf("it ends in term %d, but the segment before it ends in term %d", s.End.Term, last.End.Term)
	}
	if t.mark != nil && len(s.Marks) > 0 && goesBack(*t.mark, s.Marks[0]) {
		return errors.New("its first mark is older than the last mark before it")
	}
	return nil
}

// goesBack reports whether mark b, which follows mark a, has a lower position or an earlier time.
func goesBack(a, b segment.Mark) bool {
	return b.Position < a.Position || b.NotBefore.Before(a.NotBefore) || b.NotAfter.Before(a.NotAfter)
}

// WithMisfits returns l with a fault for each segment that is in none of its Stretches.
func (l Lineage) WithMisfits() Lineage {
	_, misfits := l.partition()
	l.Faults = slices.Concat(l.Faults, misfits)
	slices.SortStableFunc(l.Faults, func(a, b Fault) int { return cmp.Compare(a.Seq, b.Seq) })
	return l
}

// Encrypted returns l with only its encrypted segments. The others become faults that match ErrDamaged.
func (l Lineage) Encrypted() Lineage {
	plain := func(s Segment) bool { return s.Seal.Encryption == "" }
	if !slices.ContainsFunc(l.Segments, plain) {
		return l
	}
	faults := slices.Clone(l.Faults)
	for _, s := range l.Segments {
		if plain(s) {
			key := SegmentKey(s.Cluster, l.ID, s.FirstSeq())
			err := fmt.Errorf("%s: %w: not encrypted", key, ErrDamaged)
			faults = append(faults, Fault{Key: key, Seq: s.FirstSeq(), Upto: s.Seq, First: s.First, Last: s.Last, Err: err})
		}
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.Seq, b.Seq) })
	l.Segments, l.Faults = slices.DeleteFunc(slices.Clone(l.Segments), plain), faults
	return l
}

// indexOf returns the index of the segment, single or folded, that includes seq; -1 if there is none.
func (l Lineage) indexOf(seq uint64) int {
	return slices.IndexFunc(l.Segments, func(s Segment) bool { return s.FirstSeq() <= seq && seq <= s.Seq })
}

// Without returns l with segment seq replaced by a fault with the error why. If the segment is folded, the fault covers all
// segments that it includes; see Catalog.Unfold. If l has no such segment, it returns l.
func (l Lineage) Without(seq uint64, why error) Lineage {
	i := l.indexOf(seq)
	if i < 0 {
		return l
	}
	gone := l.Segments[i]
	l.Segments = slices.Delete(slices.Clone(l.Segments), i, i+1)
	l.Faults = append(slices.Clone(l.Faults), Fault{
		Key: SegmentKey(gone.Cluster, l.ID, gone.FirstSeq()), Seq: gone.FirstSeq(), Upto: gone.Seq, First: gone.First, Last: gone.Last, Err: why,
	})
	slices.SortStableFunc(l.Faults, func(a, b Fault) int { return cmp.Compare(a.Seq, b.Seq) })
	return l
}

// CheckPlace returns an error unless s has this cluster, lineage and seq.
func (s Segment) CheckPlace(cluster, lineage string, seq uint64) error {
	if s.Cluster != cluster || s.Lineage != lineage || s.Seq != seq {
		return fmt.Errorf("expected the header of segment %d of lineage %s of cluster %s, got %d of %s of %s",
			seq, lineage, cluster, s.Seq, s.Lineage, s.Cluster)
	}
	return nil
}

// FirstWritten returns when the first of l's segments was written; zero if there are no segments.
func (l Lineage) FirstWritten() time.Time {
	if len(l.Segments) == 0 {
		return time.Time{}
	}
	return l.Segments[0].Written
}

// IndexSeq returns the seq of the index from which s, a folded segment, was read: that of the index's first segment, which is
// directly before s because Fold does not merge it.
func (s Segment) IndexSeq() uint64 { return s.FirstSeq() - 1 }

// IsFoldOf reports whether s was folded from segments, of which there must be at least one. It compares both ends of the
// chain of digests and checks each link between them. Equal chains mean equal headers: each digest is of a whole header.
func (s Segment) IsFoldOf(segments []Segment) bool {
	first, last := segments[0], segments[len(segments)-1]
	if first.Previous != s.Previous || last.Digest != s.Digest {
		return false
	}
	for i := 1; i < len(segments); i++ {
		if segments[i].Previous != segments[i-1].Digest {
			return false
		}
	}
	return true
}

// Began returns the NotBefore of s's first mark, the earliest time in s. Without marks it returns s.Written.
func (s Segment) Began() time.Time {
	if len(s.Marks) > 0 {
		return s.Marks[0].NotBefore
	}
	return s.Written
}
