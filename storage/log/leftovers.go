package log

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Leftovers returns the objects of the log that were pruned and still exist. It stops listing at the first segment that is
// not pruned: a log may have millions.
func (log *Log) Leftovers(ctx context.Context) ([]catalog.Leftover, error) {
	var leftovers []catalog.Leftover
	for after := ""; ; {
		lineage, err := log.nextLineage(ctx, after)
		if err == nil && lineage == "" {
			return leftovers, nil
		}
		var some []catalog.Leftover
		if err == nil {
			some, err = log.lineageLeftovers(ctx, lineage)
		}
		if err != nil {
			return nil, fmt.Errorf("list the pruned objects of the log of cluster %s: %w", log.store.Cluster, err)
		}
		leftovers = append(leftovers, some...)
		// "0" is the byte after "/": this sorts after every key of the lineage, and before the next lineage.
		after = catalog.LogPrefix(log.store.Cluster) + lineage + "0"
	}
}

// nextLineage returns the first lineage with a key that sorts after the given one; "" if there is none. It skips lineages that cannot be
// listed.
func (log *Log) nextLineage(ctx context.Context, after string) (string, error) {
	for object, err := range log.store.Bucket.List(ctx, storage.ListOptions{Prefix: catalog.LogPrefix(log.store.Cluster), After: after}) {
		_, unlisted := log.UnlistedLineage(err)
		if unlisted {
			continue
		}
		if err != nil {
			return "", err
		}
		lineage, _, ok := strings.Cut(strings.TrimPrefix(object.Key, catalog.LogPrefix(log.store.Cluster)), "/")
		if ok && catalog.ValidLineage(lineage) == nil {
			return lineage, nil
		}
	}
	return "", nil
}

// listLogNames calls use for each object of a lineage whose name begins with prefix, until use returns false.
func (log *Log) listLogNames(ctx context.Context, lineage, prefix string, use func(catalog.LogName, storage.Object) (more bool)) error {
	for object, err := range log.store.Bucket.List(ctx, storage.ListOptions{Prefix: catalog.LineagePrefix(log.store.Cluster, lineage) + prefix}) {
		if err != nil {
			return err
		}
		name, ok := catalog.SplitLogKey(log.store.Cluster, object.Key)
		if ok && !use(name, object) {
			break
		}
	}
	return nil
}

// Cut is a valid tombstone of a lineage. Upto is the seq of the last pruned segment.
type Cut struct {
	Upto   uint64
	object storage.Object
}

// lineageLeftovers returns the pruned objects of a lineage that still exist.
func (log *Log) lineageLeftovers(ctx context.Context, lineage string) ([]catalog.Leftover, error) {
	cuts, err := log.Cuts(ctx, lineage)
	if err != nil || len(cuts) == 0 {
		return nil, err
	}
	packs, err := log.listPacks(ctx, lineage)
	if err != nil {
		return nil, err
	}
	var leftovers []catalog.Leftover
	highest := cuts[len(cuts)-1]
	needed := map[uint64]bool{} // the first seqs of packs with a segment after the highest cut, whose indexes stay
	for _, p := range packs {
		if p.last > highest.Upto {
			needed[p.first] = true
		}
		if p.last <= highest.Upto {
			leftovers = append(leftovers, leftover(firstCut(cuts, p.last), storage.Object{Key: log.packKey(lineage, p), Size: p.size, ModTime: p.stored}))
		}
	}
	// lowest is the seq of the first segment that the highest cut includes, next that of the first segment after that cut; 0: none.
	// Segments sort before indexes and tombstones.
	var lowest, next uint64
	err = log.listLogNames(ctx, lineage, "", func(n catalog.LogName, o storage.Object) bool {
		if n.Kind != catalog.LogSegment || n.Seq > highest.Upto {
			if n.Kind == catalog.LogSegment {
				next = n.Seq
			}
			return false
		}
		if lowest == 0 {
			lowest = n.Seq
		}
		leftovers = append(leftovers, leftover(firstCut(cuts, n.Seq), o))
		return true
	})
	if err != nil {
		return nil, err
	}
	for _, cut := range cuts[:len(cuts)-1] { // the highest tombstone is kept; another one goes once no segment that it prunes is left
		if lowest == 0 || cut.Upto < lowest {
			leftovers = append(leftovers, leftover(cut, cut.object))
		}
	}
	indexes, err := log.indexLeftovers(ctx, lineage, cuts, next == 0 && len(needed) == 0)
	for _, index := range indexes {
		name, _ := catalog.SplitLogKey(log.store.Cluster, index.Key)
		if !needed[name.Seq] {
			leftovers = append(leftovers, index)
		}
	}
	return leftovers, err
}

// firstCut returns the first cut that includes seq. The last cut must include it. The first one counts, so that later cuts
// do not restart the grace.
func firstCut(cuts []Cut, seq uint64) Cut {
	return cuts[slices.IndexFunc(cuts, func(cut Cut) bool { return cut.Upto >= seq })]
}

// leftover returns the leftover for o, pruned by cut. Its grace begins at the later of the times at which o and the tombstone
// were stored.
func leftover(cut Cut, o storage.Object) catalog.Leftover {
	return catalog.Leftover{Key: o.Key, Size: o.Size, Since: slices.MaxFunc([]time.Time{o.ModTime, cut.object.ModTime}, time.Time.Compare)}
}

// Cuts returns the valid tombstones of a lineage, ascending by seq. Tombstones that are damaged or not trusted are skipped.
func (log *Log) Cuts(ctx context.Context, lineage string) (cuts []Cut, err error) {
	err = log.listLogNames(ctx, lineage, catalog.TombstonePrefix, func(n catalog.LogName, o storage.Object) bool {
		cuts = append(cuts, Cut{n.Seq, o})
		return true
	})
	var failed error
	cuts = slices.DeleteFunc(cuts, func(cut Cut) bool {
		err := log.checkLogTombstone(ctx, lineage, cut.Upto)
		if err != nil && !isUnusable(err) {
			failed = err
		}
		return err != nil
	})
	return cuts, errors.Join(err, failed)
}

// indexLeftovers returns the indexes whose segments are all pruned. Of the indexes that begin at or before the first seq after
// the highest cut, these are all but the last. all means that no segment is left: then the last is one too.
func (log *Log) indexLeftovers(ctx context.Context, lineage string, cuts []Cut, all bool) (leftovers []catalog.Leftover, err error) {
	highest := cuts[len(cuts)-1]
	var before storage.Object
	err = log.listLogNames(ctx, lineage, catalog.IndexPrefix, func(n catalog.LogName, o storage.Object) bool {
		if n.Seq > highest.Upto+1 {
			return false
		}
		if before.Key != "" {
			leftovers = append(leftovers, leftover(firstCut(cuts, n.Seq-1), before))
		}
		before = o
		return true
	})
	if all && before.Key != "" {
		leftovers = append(leftovers, leftover(highest, before))
	}
	return leftovers, err
}
