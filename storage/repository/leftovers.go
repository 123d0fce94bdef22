package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Leftover is what a killed or a deleted backup left: data without a manifest or with a tombstone, or a store's unfinished
// piece.
type Leftover struct {
	Key   string
	Size  int64
	Since time.Time // the last sign of life; a backup that still runs has one of late
	piece *storage.Object
}

// Leftovers lists what killed backups of this cluster left, in the order of the keys. A backup that is running now is
// among them: only Since tells it apart.
func (c *Cluster) Leftovers(ctx context.Context) ([]Leftover, error) {
	folders, err := c.folders(ctx, "")
	if err != nil {
		return nil, err
	}
	var leftovers []Leftover
	for _, f := range folders {
		if f.has(manifestName) {
			// A tombstone that cannot be used deletes nothing, and one that cannot be read is read the next time.
			if deleted, err := c.isDeleted(ctx, f); err != nil || !deleted {
				continue
			}
		}
		for _, o := range f.objects {
			leftovers = append(leftovers, Leftover{Key: o.Key, Size: o.Size, Since: f.touched()})
		}
	}
	sweeper, ok := storage.AsSweeper(c.bucket)
	if !ok {
		return leftovers, nil
	}
	for piece, err := range sweeper.Leftovers(ctx, c.backupsPrefix()) {
		if err != nil {
			return nil, fmt.Errorf("list the leftovers of cluster %s: %w", c.name, err)
		}
		leftovers = append(leftovers, Leftover{Key: piece.Key, Size: piece.Size, Since: piece.ModTime, piece: &piece})
	}
	slices.SortStableFunc(leftovers, func(a, b Leftover) int { return cmp.Compare(a.Key, b.Key) })
	return leftovers, nil
}

// touched is the last sign of life: of a backup that was killed, or that somebody has deleted.
func (f folder) touched() time.Time {
	last := f.id.Started()
	for _, o := range f.objects {
		last = latest(last, o.ModTime)
	}
	return last
}

// Sweep removes the leftovers that have given no sign of life for grace before now, and returns them. The grace must
// be longer than any backup takes. What is locked stays until its lock has ended.
func (c *Cluster) Sweep(ctx context.Context, grace time.Duration, now time.Time) ([]Leftover, error) {
	all, err := c.Leftovers(ctx)
	var swept []Leftover
	kept := map[ID]bool{}   // of which something could not be removed
	for _, l := range all { // a tombstone comes behind all that it stands for
		id, name, _ := c.splitKey(l.Key)
		if now.Sub(l.Since) < grace || name == tombstoneName && kept[id] {
			continue
		}
		e := c.sweep(ctx, l)
		if e == nil {
			swept = append(swept, l)
			continue
		}
		kept[id] = true // without its tombstone the backup would be back
		if !errors.Is(e, storage.ErrLocked) {
			err = errors.Join(err, fmt.Errorf("remove leftover %s: %w", l.Key, e))
		}
	}
	return swept, err
}

func (c *Cluster) sweep(ctx context.Context, l Leftover) error {
	if l.piece == nil {
		return c.bucket.Delete(ctx, l.Key, storage.DeleteOptions{})
	}
	sweeper, _ := storage.AsSweeper(c.bucket)
	return sweeper.Sweep(ctx, *l.piece)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
