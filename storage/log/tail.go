package log

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// Tail is where the log ends, for an archiver that wants to go on from there.
type Tail struct {
	Lineage string          // the newest one; "": there is no log yet
	Last    catalog.Segment // its last one whose header can be read; Seq 0 if none can
	// Unindexed are the seqs that the newest index does not reach, ascending.
	Unindexed []uint64
	// Broken is why the lineage cannot be continued behind Last: what stood there is missing or damaged, so that a new
	// lineage must begin. nil: it can.
	Broken error
}

// LogTail finds the end of the log, with one listing and few headers. The newest lineage is the one that begins latest
// by its own header, and after no other that is there.
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
	if err := log.findLast(ctx, f, &tail); err != nil {
		return Tail{}, err
	}
	return tail, log.findUnindexed(ctx, f, &tail)
}

// newest reads the first header of each lineage.
func (log *Log) newest(ctx context.Context, folders []logFolder) (logFolder, error) {
	begins := make([]catalog.Lineage, len(folders))
	err := records.Parallel(ctx, headReaders, len(folders), func(ctx context.Context, i int) error {
		begins[i].ID = folders[i].lineage
		for s := range folders[i].segments.all() {
			first, err := log.ReadSegment(ctx, folders[i].lineage, s.seq)
			if err == nil {
				begins[i].Segments = []catalog.Segment{first}
				return nil
			}
			if !errors.Is(err, catalog.ErrDamaged) && !records.IsAbsent(err) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return logFolder{}, err
	}
	sorted := inHistory(begins)
	newest := sorted[len(sorted)-1].ID
	return folders[slices.IndexFunc(folders, func(f logFolder) bool { return f.lineage == newest })], nil
}

// findLast goes back from the end to a header that can be read.
func (log *Log) findLast(ctx context.Context, f logFolder, tail *Tail) error {
	for s := range f.segments.backward() {
		last, err := log.ReadSegment(ctx, f.lineage, s.seq)
		if err == nil {
			tail.Last = last
			return nil
		}
		if !errors.Is(err, catalog.ErrDamaged) && !records.IsAbsent(err) {
			return err
		}
		if tail.Broken == nil {
			tail.Broken = err
		}
	}
	if tail.Broken == nil {
		tail.Broken = fmt.Errorf("%s: every segment is %w, only indexes are there", catalog.LineagePrefix(log.store.Cluster, f.lineage), catalog.ErrNotFound)
	}
	return nil
}

// findUnindexed reads the newest index. If that is damaged its name is taken all the same, so that the next one must
// begin behind its first seq.
func (log *Log) findUnindexed(ctx context.Context, f logFolder, tail *Tail) error {
	var indexed uint64
	if n := len(f.indexes); n > 0 {
		indexed = f.indexes[n-1]
		segments, err := log.readIndex(ctx, f.lineage, indexed)
		if err != nil && !errors.Is(err, catalog.ErrDamaged) && !records.IsAbsent(err) {
			return err
		}
		if err == nil {
			indexed = segments[len(segments)-1].Seq
		}
	}
	for s := range f.segments.after(indexed).all() {
		tail.Unindexed = append(tail.Unindexed, s.seq)
	}
	return log.checkEnd(ctx, f, indexed, tail)
}

// checkEnd finds segments that are gone from the end though an index has them. A listing may miss the newest ones, so
// the next one is asked for by name: going on from Last is right then, for the loser of that race goes on from it.
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
