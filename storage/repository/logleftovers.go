package repository

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

// logLeftovers lists what was pruned of the log and is still there. It lists no segment beyond: a log has millions.
func (c *Cluster) logLeftovers(ctx context.Context) ([]Leftover, error) {
	var leftovers []Leftover
	for after := ""; ; {
		lineage, err := c.nextLineage(ctx, after)
		if err == nil && lineage == "" {
			return leftovers, nil
		}
		var some []Leftover
		if err == nil {
			some, err = c.lineageLeftovers(ctx, lineage)
		}
		if err != nil {
			return nil, fmt.Errorf("list what was pruned of the log of cluster %s: %w", c.name, err)
		}
		leftovers = append(leftovers, some...)
		after = catalog.LogPrefix(c.name) + lineage + "0" // "0" follows "/": past every key of this lineage, before those of any other
	}
}

// nextLineage is the first one behind that key, "" if there is none.
func (c *Cluster) nextLineage(ctx context.Context, after string) (string, error) {
	for object, err := range c.bucket.List(ctx, storage.ListOptions{Prefix: catalog.LogPrefix(c.name), After: after}) {
		if _, unlisted := c.unlistedLineage(err); unlisted {
			continue
		}
		if err != nil {
			return "", err
		}
		lineage, _, ok := strings.Cut(strings.TrimPrefix(object.Key, catalog.LogPrefix(c.name)), "/")
		if ok && catalog.ValidLineage(lineage) == nil {
			return lineage, nil
		}
	}
	return "", nil
}

// listLogNames lists the objects of a lineage whose names begin so, until use says that it has enough.
func (c *Cluster) listLogNames(ctx context.Context, lineage, prefix string, use func(catalog.LogName, storage.Object) (more bool)) error {
	for object, err := range c.bucket.List(ctx, storage.ListOptions{Prefix: catalog.LineagePrefix(c.name, lineage) + prefix}) {
		if err != nil {
			return err
		}
		if name, ok := catalog.SplitLogKey(c.name, object.Key); ok && !use(name, object) {
			break
		}
	}
	return nil
}

// cut is a tombstone that counts.
type cut struct {
	upto   uint64
	object storage.Object
}

func (c *Cluster) lineageLeftovers(ctx context.Context, lineage string) ([]Leftover, error) {
	cuts, err := c.cuts(ctx, lineage)
	if err != nil || len(cuts) == 0 {
		return nil, err
	}
	var leftovers []Leftover
	highest := cuts[len(cuts)-1]
	var lowest, next uint64 // seqs: of the lowest segment that is there, and of the first one behind what was pruned
	err = c.listLogNames(ctx, lineage, "", func(n catalog.LogName, o storage.Object) bool {
		if n.Kind != catalog.LogSegment || n.Seq > highest.upto {
			if n.Kind == catalog.LogSegment {
				next = n.Seq
			}
			return false
		}
		if lowest == 0 {
			lowest = n.Seq
		}
		leftovers = append(leftovers, leftSince(firstCut(cuts, n.Seq), o))
		return true
	})
	if err != nil {
		return nil, err
	}
	for _, cut := range cuts[:len(cuts)-1] { // the highest one stays
		if lowest == 0 || cut.upto < lowest {
			leftovers = append(leftovers, leftSince(cut, cut.object))
		}
	}
	indexes, err := c.indexLeftovers(ctx, lineage, cuts, next == 0)
	return append(leftovers, indexes...), err
}

// firstCut is the first one that seq belonged to, which is not behind the highest: later ones must not begin its grace anew.
func firstCut(cuts []cut, seq uint64) cut {
	return cuts[slices.IndexFunc(cuts, func(cut cut) bool { return cut.upto >= seq })]
}

func leftSince(cut cut, o storage.Object) Leftover {
	return Leftover{Key: o.Key, Size: o.Size, Since: slices.MaxFunc([]time.Time{o.ModTime, cut.object.ModTime}, time.Time.Compare)}
}

// cuts are the tombstones of a lineage that count, ascending.
func (c *Cluster) cuts(ctx context.Context, lineage string) (cuts []cut, err error) {
	err = c.listLogNames(ctx, lineage, catalog.TombstonePrefix, func(n catalog.LogName, o storage.Object) bool {
		cuts = append(cuts, cut{n.Seq, o})
		return true
	})
	var failed error
	cuts = slices.DeleteFunc(cuts, func(cut cut) bool {
		err := c.checkLogTombstone(ctx, lineage, cut.upto)
		if err != nil && !isAbsent(err) && !errors.Is(err, catalog.ErrDamaged) {
			failed = err
		}
		return err != nil
	})
	return cuts, errors.Join(err, failed)
}

// indexLeftovers are the indexes of nothing but what was pruned: those before another one that begins no later than what
// is left and, if nothing is left, all.
func (c *Cluster) indexLeftovers(ctx context.Context, lineage string, cuts []cut, all bool) (leftovers []Leftover, err error) {
	highest := cuts[len(cuts)-1]
	var before storage.Object
	err = c.listLogNames(ctx, lineage, catalog.IndexPrefix, func(n catalog.LogName, o storage.Object) bool {
		if n.Seq > highest.upto+1 {
			return false
		}
		if before.Key != "" {
			leftovers = append(leftovers, leftSince(firstCut(cuts, n.Seq-1), before))
		}
		before = o
		return true
	})
	if all && before.Key != "" {
		leftovers = append(leftovers, leftSince(highest, before))
	}
	return leftovers, err
}
