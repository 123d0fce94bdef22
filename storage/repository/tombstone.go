package repository

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Delete takes a backup out of the catalog, by a tombstone, and removes its manifest. Its data goes with the leftovers,
// after their grace. A manifest that is locked gives storage.ErrLocked: the backup is deleted all the same, and its
// objects stay until their lock has ended. A backup that is not there gives ErrNotFound, and one that is pinned ErrPinned.
func (c *Cluster) Delete(ctx context.Context, t catalog.Tombstone) error {
	if err := c.deletable(ctx, t.Backup); err != nil {
		return err
	}
	key, err := c.bury(ctx, t)
	if err != nil {
		return fmt.Errorf("delete backup %s: %w", t.Backup, err)
	}
	// Who pins looks for tombstones after its pin: one of the two sees the other. Each deletion has a tombstone of its own, and
	// withdraws no other: else a third process could delete what a pin was just granted for.
	if err := c.deletable(ctx, t.Backup); errors.Is(err, ErrPinned) {
		return errors.Join(err, c.store.Bucket.Delete(ctx, key, storage.DeleteOptions{}))
	} else if err != nil {
		return err
	}
	if err := c.store.Bucket.Delete(ctx, catalog.ManifestKey(c.store.Cluster, t.Backup), storage.DeleteOptions{}); err != nil {
		return fmt.Errorf("backup %s is deleted, and its objects are still there: %w", t.Backup, err)
	}
	return nil
}

// bury stores t under a name of its own, and returns its key.
func (c *Cluster) bury(ctx context.Context, t catalog.Tombstone) (key string, err error) {
	t.Format = catalog.Tombstones.Format
	if t.Repository, err = c.store.RepositoryID(ctx); err != nil {
		return "", err
	}
	data, err := catalog.Tombstones.Encode(t)
	if err != nil {
		return "", err
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	key = catalog.BackupKey(c.store.Cluster, t.Backup, catalog.TombstonePrefix+hex.EncodeToString(id)+catalog.JSONSuffix)
	return key, c.store.CreateSigned(ctx, key, data)
}

func (c *Cluster) deletable(ctx context.Context, id catalog.ID) error {
	f, err := c.reader.Folder(ctx, id)
	if err != nil {
		return fmt.Errorf("delete backup %s: %w", id, err)
	}
	if !f.Has(catalog.ManifestName) {
		return fmt.Errorf("backup %s of cluster %s is %w", id, c.store.Cluster, catalog.ErrNotFound)
	}
	pins, _, err := c.reader.LoadPins(ctx, f)
	if err != nil {
		return fmt.Errorf("delete backup %s: %w", id, err)
	}
	if len(pins) > 0 {
		return fmt.Errorf("delete backup %s: %w: dr unpin lifts that", id, ErrPinned)
	}
	return nil
}
