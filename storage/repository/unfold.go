package repository

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage"
)

// index returns the seq under which the index is stored that s was folded of: fold leaves the first of an index alone.
func (s Segment) index() uint64 { return s.FirstSeq() - 1 }

// Unfold returns the segments that s stands for, read from their index or, where that is missing or damaged, from the segments
// themselves. What is not the chain that s was folded of gives ErrDamaged, a segment that is missing storage.ErrNotExist.
func (c *Cluster) Unfold(ctx context.Context, s Segment) ([]Segment, error) {
	if s.Folded == 0 {
		return []Segment{s}, nil
	}
	segments, err := c.readIndex(ctx, s.Lineage, s.index())
	if err == nil {
		first := slices.IndexFunc(segments, func(one Segment) bool { return one.Seq == s.FirstSeq() })
		if first >= 0 && len(segments) >= first+s.Count() && s.isOf(segments[first:first+s.Count()]) {
			return slices.Clone(segments[first : first+s.Count()]), nil
		}
	}
	if err == nil || errors.Is(err, ErrDamaged) || isAbsent(err) {
		segments, err = c.Segments(ctx, s.Lineage, seqs(s.FirstSeq(), s.Seq))
	}
	if err == nil && !s.isOf(segments) {
		err = fmt.Errorf("%w: they are not the segments that the catalog was made of", ErrDamaged)
	}
	if err != nil {
		return nil, fmt.Errorf("read segments %d to %d of lineage %s: %w", s.FirstSeq(), s.Seq, s.Lineage, err)
	}
	return segments, nil
}

func seqs(first, last uint64) (all []uint64) {
	for seq := first; seq <= last; seq++ {
		all = append(all, seq)
	}
	return all
}

// isOf reports whether s was folded of segments: the digest of the last one's header names all before.
func (s Segment) isOf(segments []Segment) bool {
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

// Unfolded yields the segments that those of a stretch stand for, from one seq to another, and reads the headers of one index
// at a time. After an error it ends.
func (c *Cluster) Unfolded(ctx context.Context, segments []Segment, first, last uint64) iter.Seq2[Segment, error] {
	return func(yield func(Segment, error) bool) {
		for _, s := range segments {
			if s.Seq < first || s.FirstSeq() > last {
				continue
			}
			some, err := c.Unfold(ctx, s)
			if err != nil {
				yield(Segment{}, err)
				return
			}
			for _, one := range some {
				if one.Seq >= first && one.Seq <= last && !yield(one, nil) {
					return
				}
			}
		}
	}
}

// Unfold returns c with the segment of that lineage and seq standing for itself alone, and so do those that it was folded with.
func (c Catalog) Unfold(ctx context.Context, lineage string, seq uint64) (Catalog, error) {
	at := slices.IndexFunc(c.Lineages, func(l Lineage) bool { return l.ID == lineage })
	if at < 0 {
		return c, nil
	}
	i := c.Lineages[at].holding(seq)
	if i < 0 || c.Lineages[at].Segments[i].Folded == 0 {
		return c, nil
	}
	segments, err := c.Headers(ctx, c.Lineages[at].Segments[i])
	if err != nil {
		return c, err
	}
	c.Lineages = slices.Clone(c.Lineages)
	l := &c.Lineages[at]
	l.Segments = slices.Concat(l.Segments[:i], segments, l.Segments[i+1:])
	return c, nil
}

// WithExactWindows unfolds the segments with which the windows begin, so that they count no segment too many. Where that is not
// to be had any more, as while they are pruned, they count some more.
func (c Catalog) WithExactWindows(ctx context.Context) (Catalog, error) {
	for _, l := range c.Lineages {
		for _, s := range l.Stretches() {
			bases := c.Bases(s)
			if len(bases) == 0 {
				continue
			}
			begin, _ := s.oldest(bases).Span(s.Source())
			i := min(s.holding(begin+1), len(s.Segments)-1)
			exact, err := c.Unfold(ctx, l.ID, s.Segments[i].Seq)
			switch {
			case err == nil:
				c = exact
			case !errors.Is(err, ErrDamaged) && !errors.Is(err, storage.ErrNotExist):
				return c, err
			}
		}
	}
	return c, nil
}
