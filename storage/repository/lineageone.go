package repository

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// LoadLineage reads one lineage of the log. One that is not there gives ErrNotFound.
func (c *Cluster) LoadLineage(ctx context.Context, id string) (Lineage, error) {
	if err := ValidLineage(id); err != nil {
		return Lineage{}, err
	}
	folders, err := c.logFolders(ctx)
	if err != nil {
		return Lineage{}, err
	}
	for _, f := range folders {
		if f.lineage == id {
			return c.loadLineage(ctx, f)
		}
	}
	return Lineage{}, fmt.Errorf("lineage %s of cluster %s is %w", id, c.name, ErrNotFound)
}

// Without is l as it would be without one of its segments, which is a fault then.
func (l Lineage) Without(seq uint64, why error) Lineage {
	i := slices.IndexFunc(l.Segments, func(s Segment) bool { return s.Seq == seq })
	if i < 0 {
		return l
	}
	gone := l.Segments[i]
	l.Segments = slices.Delete(slices.Clone(l.Segments), i, i+1)
	l.Faults = append(slices.Clone(l.Faults), Fault{
		Key: (&Cluster{name: gone.Cluster}).segmentKey(l.ID, seq), Seq: seq, Upto: seq, First: gone.First, Last: gone.Last, Err: why,
	})
	slices.SortStableFunc(l.Faults, func(a, b Fault) int { return cmp.Compare(a.Seq, b.Seq) })
	return l
}

// End is the last point of s: its last position, the highest revision that a mark knows, and the last mark's time.
func (s Stretch) End() Point { return to(s) }

// LastMark is the last mark of s; not ok if it has none.
func (s Stretch) LastMark() (segment.Mark, bool) { return s.ends() }
