package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// Leftovers returns the objects that killed backups left, those of deleted backups and of the pruned log, and unfinished
// uploads, sorted by key. A backup that is running now is among them: only its recent Since distinguishes it.
func (c *Cluster) Leftovers(ctx context.Context) ([]catalog.Leftover, error) {
	folders, err := c.reader.Folders(ctx, backups.LoadOptions{Imported: true})
	if err != nil {
		return nil, err
	}
	var leftovers []catalog.Leftover
	for _, f := range folders {
		if f.Has(catalog.ManifestName) {
			// An invalid tombstone deletes nothing. One that cannot be read now is read by the next call.
			deleted, err := c.reader.IsDeleted(ctx, f)
			if err != nil || !deleted {
				continue
			}
		}
		for _, o := range f.Objects {
			leftovers = append(leftovers, catalog.Leftover{Key: o.Key, Size: o.Size, Since: f.Touched()})
		}
	}
	pieces, err := c.pieces(ctx)
	if err != nil {
		return nil, err
	}
	pruned, err := c.log.Leftovers(ctx)
	if err != nil {
		return nil, err
	}
	leftovers = slices.Concat(leftovers, pieces, pruned)
	slices.SortStableFunc(leftovers, func(a, b catalog.Leftover) int { return cmp.Compare(a.Key, b.Key) })
	return leftovers, nil
}

// pieces returns the unfinished uploads below the cluster's prefix, which no listing shows. It returns none if the store has no
// Sweeper.
func (c *Cluster) pieces(ctx context.Context) (pieces []catalog.Leftover, err error) {
	sweeper, ok := storage.AsSweeper(c.store.Bucket)
	if !ok {
		return nil, nil
	}
	for piece, err := range sweeper.Leftovers(ctx, c.store.Cluster+"/") {
		_, unlisted := errors.AsType[*storage.UnlistedError](err)
		if unlisted {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the leftovers of cluster %s: %w", c.store.Cluster, err)
		}
		pieces = append(pieces, catalog.Leftover{Key: piece.Key, Size: piece.Size, Since: piece.ModTime, Piece: &piece})
	}
	return pieces, nil
}

// Sweep removes the leftovers whose Since is at least grace before now, and returns them. The grace must be longer than any
// backup takes, because the data of a running backup is a leftover too. Locked objects stay; they cause no error.
func (c *Cluster) Sweep(ctx context.Context, grace time.Duration, now time.Time) ([]catalog.Leftover, error) {
	swept, _, err := c.sweepOld(ctx, PruneOptions{Grace: grace, Now: now})
	return swept, err
}

// sweepOld is like Sweep, but also returns the locked leftovers. With DryRun it returns the same and removes nothing.
func (c *Cluster) sweepOld(ctx context.Context, o PruneOptions) (swept, locked []catalog.Leftover, err error) {
	all, err := c.Leftovers(ctx)
	if err != nil {
		return nil, nil, err
	}
	all = slices.DeleteFunc(all, func(l catalog.Leftover) bool { return o.Now.Sub(l.Since) < o.Grace })
	sweep := c.sweep
	if o.DryRun {
		sweep = func(ctx context.Context, l catalog.Leftover) error { return c.checkUnlocked(ctx, l, o.Now) }
	}
	if len(all) > 0 && !o.DryRun {
		ahead, err := c.clockAhead(ctx)
		if err != nil {
			return nil, nil, err
		}
		all = slices.DeleteFunc(all, func(l catalog.Leftover) bool { return o.Now.Add(-ahead).Sub(l.Since) < o.Grace })
	}
	errs := make([]error, len(all))
	kept := map[catalog.ID]bool{} // backups with an object that could not be removed
	for i, l := range all {       // a tombstone sorts after the manifest and the data that it deletes
		id, name, ok := catalog.SplitBackupKey(c.store.Cluster, l.Key)
		if !ok && l.Piece == nil { // an object of the log, removed below
			continue
		}
		if backups.IsTombstone(name) && kept[id] {
			errs[i] = errStays
			continue
		}
		errs[i] = sweep(ctx, l)
		if errs[i] != nil {
			kept[id] = true // without its tombstone the backup would be listed again
		}
	}
	_ = records.Parallel(ctx, removers, len(all), func(ctx context.Context, i int) error {
		_, ok := catalog.SplitLogKey(c.store.Cluster, all[i].Key)
		if ok && all[i].Piece == nil {
			errs[i] = sweep(ctx, all[i])
		}
		return nil
	})
	for i, l := range all {
		switch e := errs[i]; {
		case e == nil:
			swept = append(swept, l)
		case errors.Is(e, storage.ErrLocked):
			locked = append(locked, l)
		case !errors.Is(e, errStays):
			err = errors.Join(err, fmt.Errorf("remove leftover %s: %w", l.Key, e))
		}
	}
	return swept, locked, errors.Join(err, ctx.Err())
}

// timeResolution is the coarsest resolution of a store's times: S3 has whole seconds.
const timeResolution = time.Second

// clockAhead returns how far this host's clock is ahead of the store's; 0 if it is not ahead. The store dates leftovers. A host
// whose clock is a day ahead would otherwise remove objects that were deleted a moment ago, or that belong to a running backup.
func (c *Cluster) clockAhead(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	now, err := c.leases.StoreTime(ctx)
	if err != nil {
		return 0, err
	}
	return max(0, began.Sub(now)-timeResolution), nil
}

// errStays means that the object is needed: it is the data of a backup that is complete now, or a tombstone whose data still
// exists.
var errStays = errors.New("it is still needed")

// sweep removes l.
func (c *Cluster) sweep(ctx context.Context, l catalog.Leftover) error {
	if l.Piece != nil {
		sweeper, _ := storage.AsSweeper(c.store.Bucket)
		return sweeper.Sweep(ctx, *l.Piece)
	}
	id, name, ok := catalog.SplitBackupKey(c.store.Cluster, l.Key)
	if ok && strings.HasPrefix(name, catalog.SnapshotName) {
		return c.sweepData(ctx, id, l.Key)
	}
	return c.store.Bucket.Delete(ctx, l.Key, storage.DeleteOptions{})
}

// sweepData removes the data of backup id, which was not complete when it was listed. A backup that slept for longer than the
// grace may store its manifest now, and so may a copy that continues an interrupted one. Both look for the data after that, and
// sweepData looks for the manifest after it has removed the data. At least one of them sees that the backup is lost, and removes
// the manifest.
func (c *Cluster) sweepData(ctx context.Context, id catalog.ID, key string) error {
	complete, err := c.isComplete(ctx, id)
	if err != nil {
		return err
	}
	if complete {
		return errStays
	}
	err = c.store.Bucket.Delete(ctx, key, storage.DeleteOptions{})
	if err != nil {
		return err
	}
	complete, err = c.isComplete(ctx, id)
	if err != nil || !complete {
		return err
	}
	err = fmt.Errorf("backup %s was completed during the removal, and its data is %w: take another one, and use a longer grace period",
		id, catalog.ErrNotFound)
	return errors.Join(err, c.store.Bucket.Delete(ctx, catalog.ManifestKey(c.store.Cluster, id), storage.DeleteOptions{}))
}

// isComplete reports whether backup id has a manifest now, and is not deleted.
func (c *Cluster) isComplete(ctx context.Context, id catalog.ID) (bool, error) {
	_, err := c.store.Bucket.Stat(ctx, catalog.ManifestKey(c.store.Cluster, id))
	if records.IsAbsent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	f, err := c.reader.Folder(ctx, id) // a deleted backup has a manifest if it is locked
	if err != nil {
		return false, err
	}
	deleted, err := c.reader.IsDeleted(ctx, f)
	if errors.Is(err, catalog.ErrDamaged) {
		err = nil
	}
	return !deleted, err
}

// checkUnlocked returns an error that matches storage.ErrLocked if l is locked after now. The parts of an unfinished upload have no
// locks.
func (c *Cluster) checkUnlocked(ctx context.Context, l catalog.Leftover, now time.Time) error {
	if l.Piece != nil {
		return nil
	}
	o, err := c.store.Bucket.Stat(ctx, l.Key)
	if err != nil && !records.IsAbsent(err) {
		return err
	}
	if o.RetainUntil.After(now) {
		return storage.ErrLocked
	}
	return nil
}

const removers = 32 // leftovers of the log that are removed at the same time
