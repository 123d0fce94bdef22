package log

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Unfold returns the segments that s was folded from, or s alone if it is not folded. It reads them from the index or, if
// that is missing or damaged, from the segments themselves. The error matches catalog.ErrDamaged if they are not those that s
// was folded from, and storage.ErrNotExist if a segment is missing.
func (log *Log) Unfold(ctx context.Context, s catalog.Segment) ([]catalog.Segment, error) {
	if s.Folded == 0 {
		return []catalog.Segment{s}, nil
	}
	segments, err := log.readIndex(ctx, s.Lineage, s.IndexSeq())
	if err == nil {
		first := slices.IndexFunc(segments, func(one catalog.Segment) bool { return one.Seq == s.FirstSeq() })
		if first >= 0 && len(segments) >= first+s.Count() && s.IsFoldOf(segments[first:first+s.Count()]) {
			return slices.Clone(segments[first : first+s.Count()]), nil
		}
	}
	if err == nil || isUnusable(err) {
		segments, err = log.Segments(ctx, s.Lineage, seqs(s.FirstSeq(), s.Seq))
	}
	if err == nil && !s.IsFoldOf(segments) {
		err = fmt.Errorf("%w: they are not the segments that the catalog was made of", catalog.ErrDamaged)
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

// Unfolded yields the segments with a seq from first to last, unfolded. It reads one index at a time. It ends after an error.
func (log *Log) Unfolded(ctx context.Context, segments []catalog.Segment, first, last uint64) iter.Seq2[catalog.Segment, error] {
	return func(yield func(catalog.Segment, error) bool) {
		for _, s := range segments {
			if s.Seq < first || s.FirstSeq() > last {
				continue
			}
			some, err := log.Unfold(ctx, s)
			if err != nil {
				yield(catalog.Segment{}, err)
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
