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
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// Removal lists the backups and the parts of the log to remove, as retention decides.
type Removal struct {
	Backups []catalog.Tombstone
	Log     []log.Tombstone // at most one for each lineage
}

// PruneOptions control a Prune.
type PruneOptions struct {
	Grace  time.Duration // how long the objects of deleted backups stay; it must be longer than any backup or restore takes
	Now    time.Time
	DryRun bool // change nothing
	// Index has the documents that were read for the decision. An index of them is stored, so that lists take few requests; nil: none is.
	Index *backups.Collector
}

// PruneResult is the result of a Prune. With DryRun it predicts the result, apart from two facts that only a write shows: legal
// holds, and how far this host's clock is ahead of the store's (leftovers then stay longer).
type PruneResult struct {
	Deleted []catalog.ID       // backups that are no longer listed
	Log     []log.Tombstone    // tombstones that prune the log
	Swept   []catalog.Leftover // removed objects
	Locked  []Locked           // objects that the store does not let anyone remove yet
	Pinned  []catalog.ID       // backups that stay because of a pin
	Packed  log.Packed         // segments of the log that were packed, and objects that packs replace
}

// Locked is an object that the store does not let anyone remove yet.
type Locked struct {
	Key    string
	Backup catalog.ID // the backup that stays because of the lock; "" if the object belongs to something deleted
	Until  time.Time  // zero if unknown, as for a legal hold
}

// Prune deletes the backups and the log in r, and sweeps the objects of everything that was deleted longer than o.Grace ago. It
// writes tombstones first, so that no incomplete backup is ever listed, and deletes log before the backups that it continues from.
// A backup that is pinned, or whose objects are locked until a date, stays unchanged; one under a legal hold is deleted, and only
// its objects stay. After an error, the result contains the work that was done; a repeated Prune continues from there.
func (c *Cluster) Prune(ctx context.Context, r Removal, o PruneOptions, report storage.Report) (PruneResult, error) {
	p := pruning{c: c, o: o, report: report}
	for _, t := range r.Log {
		err := p.deleteLog(ctx, t)
		if err != nil {
			return p.result, err
		}
	}
	oldestFirst := slices.Clone(r.Backups)
	slices.SortFunc(oldestFirst, func(a, b catalog.Tombstone) int { return strings.Compare(string(a.Backup), string(b.Backup)) })
	for _, t := range oldestFirst {
		err := p.deleteBackup(ctx, t)
		if err != nil {
			return p.result, err
		}
	}
	err := p.sweep(ctx)
	if ctx.Err() == nil {
		p.pack(ctx, r.Log)
	}
	if ctx.Err() == nil && !o.DryRun {
		p.storeCopies(ctx)
	}
	return p.result, err
}

// pruning is the state of a Prune.
type pruning struct {
	c      *Cluster
	o      PruneOptions
	report storage.Report
	result PruneResult
}

// deleteLog deletes the front of a lineage.
func (p *pruning) deleteLog(ctx context.Context, t log.Tombstone) error {
	if !p.o.DryRun {
		p.report.Say(storage.Event{Stage: "prune", Object: catalog.LogTombstoneKey(p.c.store.Cluster, t.Lineage, t.Upto), Message: t.Reason})
		err := p.c.log.Delete(ctx, t)
		if err != nil {
			return err
		}
	}
	p.result.Log = append(p.result.Log, t)
	return nil
}

// deleteBackup deletes a backup unless it is locked until a date, or pinned.
func (p *pruning) deleteBackup(ctx context.Context, t catalog.Tombstone) error {
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
	case errors.Is(err, catalog.ErrNotFound): // another process has deleted it
	case errors.Is(err, ErrPinned):
		p.result.Pinned = append(p.result.Pinned, t.Backup)
	case errors.Is(err, storage.ErrLocked): // under a legal hold: the tombstone is stored, and only the objects stay
		p.result.Deleted = append(p.result.Deleted, t.Backup)
		p.result.Locked = append(p.result.Locked, Locked{Key: catalog.ManifestKey(p.c.store.Cluster, t.Backup)})
	case err != nil:
		return err
	default:
		p.result.Deleted = append(p.result.Deleted, t.Backup)
	}
	return nil
}

// lockOf returns, of the locks on the backup's data and manifest, the one that ends last; nil if neither is locked after now.
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

// pack packs the log that cuts leave. An unpacked log is only slower to list and to read, so an error is none of the Prune.
func (p *pruning) pack(ctx context.Context, cuts []log.Tombstone) {
	o := log.PackOptions{Now: p.o.Now, Grace: p.o.Grace, DryRun: p.o.DryRun, PrunedUpTo: map[string]uint64{}, Report: p.report}
	for _, t := range cuts {
		o.PrunedUpTo[t.Lineage] = t.Upto
	}
	if !p.o.DryRun { // asking writes an object
		o.Ahead = p.c.clockAhead
	}
	var err error
	p.result.Packed, err = p.c.log.Pack(ctx, o)
	if err != nil {
		p.report.Say(storage.Event{Stage: "pack", Level: storage.Warning, Message: fmt.Sprintf("the log keeps many small objects: %v", err)})
	}
}

// storeCopies stores the index of the backups, and the summary of the log. Without them catalogs are only read more slowly, so an
// error is no error of the Prune.
func (p *pruning) storeCopies(ctx context.Context) {
	err := p.c.log.StoreSummary(ctx)
	if p.o.Index != nil {
		err = errors.Join(err, p.c.reader.StoreIndex(ctx, p.o.Index))
	}
	if err != nil {
		p.report.Say(storage.Event{Stage: "prune", Level: storage.Warning, Message: fmt.Sprintf("lists and restores stay slower: %v", err)})
	}
}

// sweep removes the leftovers that are older than the grace period, and adds them to the result.
func (p *pruning) sweep(ctx context.Context) error {
	swept, locked, err := p.c.sweepOld(ctx, p.o)
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
