package repository

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// Removal is what is to go, as retention decides.
type Removal struct {
	Backups []catalog.Tombstone
	Log     []log.Tombstone // at most one a lineage
}

// PruneOptions say how to remove.
type PruneOptions struct {
	Grace  time.Duration // what is deleted stays so long; it must be longer than any backup or restore takes
	Now    time.Time
	DryRun bool // only look
}

// PruneResult is what came of a Prune; with DryRun what would.
type PruneResult struct {
	Deleted []catalog.ID       // backups that are listed no more
	Log     []log.Tombstone    // by which the log was pruned
	Swept   []catalog.Leftover // objects that were removed at last
	Locked  []Locked           // objects that stay
	Pinned  []catalog.ID       // backups that stay since they have been pinned meanwhile
}

// Locked is an object that nobody may remove yet.
type Locked struct {
	Key    string
	Backup catalog.ID // that it keeps in the catalog; "" where it is only data of something deleted
	Until  time.Time  // zero if the store does not say
}

// Prune removes what r names: first by tombstones, so that nothing is listed that is half there, then the objects of all
// that was deleted longer than the grace ago, as Sweep does. The log comes before the backups that it goes on from. A backup
// of which an object is locked stays as it is, and so does one that is pinned meanwhile. It may be repeated, and goes on where
// it ended.
func (c *Cluster) Prune(ctx context.Context, r Removal, o PruneOptions, report storage.Report) (PruneResult, error) {
	p := pruning{c: c, o: o, report: report}
	for _, t := range r.Log {
		if err := p.log(ctx, t); err != nil {
			return p.result, err
		}
	}
	oldestFirst := slices.Clone(r.Backups)
	slices.SortFunc(oldestFirst, func(a, b catalog.Tombstone) int { return strings.Compare(string(a.Backup), string(b.Backup)) })
	for _, t := range oldestFirst {
		if err := p.backup(ctx, t); err != nil {
			return p.result, err
		}
	}
	return p.result, p.sweep(ctx)
}

// pruning is one Prune on its way.
type pruning struct {
	c      *Cluster
	o      PruneOptions
	report storage.Report
	result PruneResult
}

func (p *pruning) log(ctx context.Context, t log.Tombstone) error {
	if !p.o.DryRun {
		p.report.Say(storage.Event{Stage: "prune", Object: catalog.LogTombstoneKey(p.c.store.Cluster, t.Lineage, t.Upto), Message: t.Reason})
		if err := p.c.log.Delete(ctx, t); err != nil {
			return err
		}
	}
	p.result.Log = append(p.result.Log, t)
	return nil
}

func (p *pruning) backup(ctx context.Context, t catalog.Tombstone) error {
	locked, err := p.c.lockOf(ctx, t.Backup, p.o.Now)
	if err != nil {
		return fmt.Errorf("prune backup %s: %w", t.Backup, err)
	}
	if locked != nil {
		p.result.Locked = append(p.result.Locked, *locked)
		return nil
	}
	if p.o.DryRun {
		p.result.Deleted = append(p.result.Deleted, t.Backup)
		return nil
	}
	p.report.Say(storage.Event{Stage: "prune", Object: catalog.Folder(p.c.store.Cluster, t.Backup), Message: t.Reason})
	switch err := p.c.Delete(ctx, t); {
	case errors.Is(err, catalog.ErrNotFound): // somebody else was first
	case errors.Is(err, ErrPinned):
		p.result.Pinned = append(p.result.Pinned, t.Backup)
	case errors.Is(err, storage.ErrLocked): // by a hold that has no date
		p.result.Locked = append(p.result.Locked, Locked{Key: catalog.ManifestKey(p.c.store.Cluster, t.Backup)})
	case err != nil:
		return err
	default:
		p.result.Deleted = append(p.result.Deleted, t.Backup)
	}
	return nil
}

// lockOf is the lock of a backup's data or manifest that ends last, nil if neither is locked.
func (c *Cluster) lockOf(ctx context.Context, id catalog.ID, now time.Time) (*Locked, error) {
	f, err := c.reader.Folder(ctx, id)
	if err != nil {
		return nil, err
	}
	var last *Locked
	for _, listed := range f.Objects {
		name := path.Base(listed.Key)
		if name != catalog.ManifestName && !strings.HasPrefix(name, catalog.SnapshotName) {
			continue
		}
		o, err := c.store.Bucket.Stat(ctx, listed.Key)
		if err != nil && !records.IsAbsent(err) {
			return nil, err
		}
		if o.RetainUntil.After(now) && (last == nil || o.RetainUntil.After(last.Until)) {
			last = &Locked{Key: listed.Key, Backup: id, Until: o.RetainUntil}
		}
	}
	return last, nil
}

func (p *pruning) sweep(ctx context.Context) error {
	if p.o.DryRun {
		all, err := p.c.Leftovers(ctx)
		p.result.Swept = slices.DeleteFunc(all, func(l catalog.Leftover) bool { return p.o.Now.Sub(l.Since) < p.o.Grace })
		return err
	}
	swept, locked, err := p.c.sweepOld(ctx, p.o.Grace, p.o.Now)
	p.result.Swept = swept
	for _, l := range locked {
		o, e := p.c.store.Bucket.Stat(ctx, l.Key)
		if e != nil && !records.IsAbsent(e) {
			err = errors.Join(err, e)
		}
		p.result.Locked = append(p.result.Locked, Locked{Key: l.Key, Until: o.RetainUntil})
	}
	return err
}
