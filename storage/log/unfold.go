package log

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// Unfold returns the segments that s stands for, read from their index or, where that is missing or damaged, from the segments
// themselves. What is not the chain that s was folded of gives ErrDamaged, a segment that is missing storage.ErrNotExist.
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
	if err == nil || errors.Is(err, catalog.ErrDamaged) || records.IsAbsent(err) {
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

// Unfolded yields the segments that those of a stretch stand for, from one seq to another, and reads the headers of one index
// at a time. After an error it ends.
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
