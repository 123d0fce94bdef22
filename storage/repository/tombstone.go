package repository

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/document"
)

// TombstoneFormat is the number of the tombstone's format that this version writes and reads.
const TombstoneFormat = 1

// Tombstone says that a backup is deleted. It is an object of its own, so that a backup whose objects are locked can be
// deleted too: it is listed no more, and its objects go when their lock has ended.
type Tombstone struct {
	Format int       `json:"format"`
	Backup ID        `json:"backup"`
	Reason string    `json:"reason"` // one plain sentence
	Time   time.Time `json:"time"`
	By     string    `json:"by"` // host and version of dr
}

// EncodeTombstone is the stored form of t.
func EncodeTombstone(t Tombstone) ([]byte, error) { return document.Encode(t) }

// DecodeTombstone reads what EncodeTombstone wrote. Anything else gives an error that matches ErrDamaged.
func DecodeTombstone(data []byte) (Tombstone, error) {
	var t Tombstone
	if err := document.Decode(data, TombstoneFormat, &t); err != nil {
		return Tombstone{}, err
	}
	if _, err := ParseID(string(t.Backup)); err != nil {
		return Tombstone{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return t, nil
}

// Delete takes a backup out of the catalog, by a tombstone, and removes its manifest. Its data goes with the leftovers,
// after their grace. A manifest that is locked gives storage.ErrLocked: the backup is deleted all the same, and its
// objects stay until their lock has ended. A backup that is not there gives ErrNotFound, and one that is pinned ErrPinned.
func (c *Cluster) Delete(ctx context.Context, t Tombstone) error {
	t.Format = TombstoneFormat
	if err := c.deletable(ctx, t.Backup); err != nil {
		return err
	}
	data, err := EncodeTombstone(t)
	if err == nil {
		err = c.createSigned(ctx, c.key(t.Backup, tombstoneName), data)
	}
	if err != nil && !errors.Is(err, storage.ErrExist) {
		return fmt.Errorf("delete backup %s: %w", t.Backup, err)
	}
	// Whoever pins looks for a tombstone behind its pin: one of the two sees the other.
	if err := c.deletable(ctx, t.Backup); errors.Is(err, ErrPinned) {
		return errors.Join(err, c.bucket.Delete(ctx, c.key(t.Backup, tombstoneName), storage.DeleteOptions{}))
	} else if err != nil {
		return err
	}
	if err := c.bucket.Delete(ctx, c.manifestKey(t.Backup), storage.DeleteOptions{}); err != nil {
		return fmt.Errorf("backup %s is deleted, and its objects are still there: %w", t.Backup, err)
	}
	return nil
}

func (c *Cluster) deletable(ctx context.Context, id ID) error {
	f, err := c.folderOf(ctx, id)
	if err != nil {
		return fmt.Errorf("delete backup %s: %w", id, err)
	}
	if !f.has(manifestName) {
		return fmt.Errorf("backup %s of cluster %s is %w", id, c.name, ErrNotFound)
	}
	pins, _, err := c.loadPins(ctx, f)
	if err != nil {
		return fmt.Errorf("delete backup %s: %w", id, err)
	}
	if len(pins) > 0 {
		return fmt.Errorf("delete backup %s: %w: dr unpin lifts that", id, ErrPinned)
	}
	return nil
}

// isDeleted reads the tombstone of f, if there is one. One that is damaged or not trusted deletes nothing: the error says
// so and matches ErrDamaged.
func (c *Cluster) isDeleted(ctx context.Context, f folder) (bool, error) {
	if !f.has(tombstoneName) {
		return false, nil
	}
	key := c.key(f.id, tombstoneName)
	data, err := c.readSigned(ctx, key)
	if isAbsent(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", key, err)
	}
	t, err := DecodeTombstone(data)
	if err == nil && t.Backup != f.id {
		err = fmt.Errorf("%w: it belongs to backup %s and was moved here", ErrDamaged, t.Backup)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", key, err)
	}
	return true, nil
}
