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

// Tail is the end of the log, where an archiver continues.
type Tail struct {
	Lineage string          // the newest; "" if there is no log yet
	Last    catalog.Segment // the last with a valid header; Seq 0 if there is none
	// Unindexed are the seqs after the end of the newest index, ascending.
	Unindexed []uint64
	// Broken is the reason why the lineage cannot be continued after Last, and a new lineage must begin: a segment after Last
	// is missing or damaged. nil if it can be continued.
	Broken error
}

// Tail returns the end of the log. It makes one listing and reads few headers. The newest lineage is the one whose first
// segment was written last and that no other lineage follows.
func (log *Log) Tail(ctx context.Context) (Tail, error) {
	tail, err := log.logTail(ctx)
	if err != nil {
		return Tail{}, fmt.Errorf("find the end of the log of cluster %s: %w", log.store.Cluster, err)
	}
	return tail, nil
}

func (log *Log) logTail(ctx context.Context) (Tail, error) {
	folders, err := log.logFolders(ctx)
	if err != nil || len(folders) == 0 {
		return Tail{}, err
	}
	f, err := log.newest(ctx, folders)
	if err != nil {
		return Tail{}, err
	}
	tail := Tail{Lineage: f.lineage}
	err = log.findLast(ctx, f, &tail)
	if err != nil {
		return Tail{}, err
	}
	return tail, log.findUnindexed(ctx, f, &tail)
}

// newest returns the folder of the newest lineage. It reads the first valid header of each.
func (log *Log) newest(ctx context.Context, folders []logFolder) (logFolder, error) {
	begins := make([]catalog.Lineage, len(folders))
	err := records.Parallel(ctx, headReaders, len(folders), func(ctx context.Context, i int) error {
		begins[i].ID = folders[i].lineage
		for seq, err := range log.readable(ctx, folders[i]) {
			if err != nil {
				return err
			}
			first, err := log.ReadSegment(ctx, folders[i].lineage, seq)
			if err == nil {
				begins[i].Segments = []catalog.Segment{first}
				return nil
			}
			if !isUnusable(err) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return logFolder{}, err
	}
	sorted := sortByHistory(begins)
	newest := sorted[len(sorted)-1].ID
	return folders[slices.IndexFunc(folders, func(f logFolder) bool { return f.lineage == newest })], nil
}

// findLast sets tail.Last to the last segment with a valid header. It sets tail.Broken if there are later segments, or no
// segments at all.
func (log *Log) findLast(ctx context.Context, f logFolder, tail *Tail) error {
	for _, r := range slices.Backward(f.segments.runs) {
		last, err := log.readableUpTo(ctx, f.lineage, r)
		if err != nil {
			return err
		}
		if last < r.last && tail.Broken == nil {
			tail.Broken = fmt.Errorf("%s: %w: it hides its segments from %d on", log.packKey(f.lineage, r.pack), catalog.ErrDamaged, last+1)
		}
		for seq := last; seq >= r.first; seq-- {
			read, err := log.ReadSegment(ctx, f.lineage, seq)
			if err == nil {
				tail.Last = read
				return nil
			}
			if !isUnusable(err) {
				return err
			}
			if tail.Broken == nil {
				tail.Broken = err
			}
		}
	}
	if tail.Broken == nil {
		tail.Broken = fmt.Errorf("%s: every segment is %w, only indexes are there", catalog.LineagePrefix(log.store.Cluster, f.lineage), catalog.ErrNotFound)
	}
	return nil
}

// readable yields the seqs of the segments of f, ascending, without those that a damaged pack hides.
func (log *Log) readable(ctx context.Context, f logFolder) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		for _, r := range f.segments.runs {
			last, err := log.readableUpTo(ctx, f.lineage, r)
			if err != nil {
				yield(0, err)
				return
			}
			for seq := r.first; seq <= last; seq++ {
				if !yield(seq, nil) {
					return
				}
			}
		}
	}
}

// readableUpTo returns the last segment of r that can be found: r.last unless a pack is damaged; below r.first if there is none.
func (log *Log) readableUpTo(ctx context.Context, lineage string, r listedRun) (uint64, error) {
	if r.pack == nil {
		return r.last, nil
	}
	offsets, err := log.packOffsets(ctx, lineage, r.pack)
	if err != nil && !isUnusable(err) {
		return 0, err
	}
	return min(r.last, r.pack.first+uint64(max(len(offsets), 1))-2), nil // there is one offset more than segments
}

// findUnindexed sets tail.Unindexed. A damaged index keeps its name, so the next index must begin after its first seq.
func (log *Log) findUnindexed(ctx context.Context, f logFolder, tail *Tail) error {
	var indexed uint64
	n := len(f.indexes)
	if n > 0 {
		indexed = f.indexes[n-1]
		segments, err := log.readIndex(ctx, f.lineage, indexed)
		if err != nil && !isUnusable(err) {
			return err
		}
		if err == nil {
			indexed = segments[len(segments)-1].Seq
		}
	}
	p := including(f.packs, indexed)
	if p != nil {
		indexed = max(indexed, p.last)
	}
	for s := range f.segments.after(indexed).all() {
		tail.Unindexed = append(tail.Unindexed, s.seq)
	}
	return log.checkEnd(ctx, f, indexed, tail)
}

// checkEnd sets tail.Broken if the newest index, which ends at seq indexed, contains a segment after tail.Last that is
// missing or damaged. A listing can omit the newest segments, so checkEnd reads the next one by name and moves tail.Last if
// it is valid.
func (log *Log) checkEnd(ctx context.Context, f logFolder, indexed uint64, tail *Tail) error {
	if tail.Broken != nil || indexed <= tail.Last.Seq {
		return nil
	}
	next, err := log.ReadSegment(ctx, f.lineage, tail.Last.Seq+1)
	switch {
	case err == nil:
		tail.Last = next
		return log.checkEnd(ctx, f, indexed, tail)
	case records.IsAbsent(err):
		tail.Broken = Missing(catalog.SegmentKey(log.store.Cluster, f.lineage, tail.Last.Seq+1))
	case errors.Is(err, catalog.ErrDamaged):
		tail.Broken = err
	default:
		return err
	}
	return nil
}
