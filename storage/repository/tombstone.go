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

// Delete deletes the backup t.Backup: it stores a tombstone and removes the manifest. The data becomes a leftover, which Sweep
// removes after a grace period. A locked manifest gives storage.ErrLocked: the backup is deleted all the same, and its objects stay
// until the lock ends. A missing backup gives catalog.ErrNotFound, and a pinned one ErrPinned.
func (c *Cluster) Delete(ctx context.Context, t catalog.Tombstone) error {
	err := c.deletable(ctx, t.Backup)
	if err != nil {
		return err
	}
	key, err := c.createTombstone(ctx, t)
	if err != nil {
		return fmt.Errorf("delete backup %s: %w", t.Backup, err)
	}
	// Pin looks for tombstones after it has stored its pin, and Delete looks for pins after its tombstone: at least one of them
	// sees the other's document. Each deletion has its own tombstone and withdraws no other. If two deletions shared one,
	// one of them could remove a backup after Pin has succeeded.
	err = c.deletable(ctx, t.Backup)
	if errors.Is(err, ErrPinned) {
		return errors.Join(err, c.store.Bucket.Delete(ctx, key, storage.DeleteOptions{}))
	} else if err != nil {
		return err
	}
	err = c.store.Bucket.Delete(ctx, catalog.ManifestKey(c.store.Cluster, t.Backup), storage.DeleteOptions{})
	if err != nil {
		return fmt.Errorf("backup %s is deleted, but its manifest could not be removed: %w", t.Backup, err)
	}
	return nil
}

// createTombstone stores t under a new random name, and returns its key.
func (c *Cluster) createTombstone(ctx context.Context, t catalog.Tombstone) (key string, err error) {
	t.Format = catalog.Tombstones.Format
	t.Repository, err = c.store.RepositoryID(ctx)
	if err != nil {
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

// deletable returns catalog.ErrNotFound unless the backup has a manifest, and ErrPinned if a pin keeps it.
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
		return fmt.Errorf("delete backup %s: %w: remove the pin with dr unpin", id, ErrPinned)
	}
	return nil
}
