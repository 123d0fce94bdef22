package repository

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrPinned means that a pin keeps the backup.
var ErrPinned = fault.New(fault.Busy, "backup is pinned")

// Pin pins p.Backup, and returns p with Format and ID set. A backup that is missing, has a tombstone, or is deleted at the same
// time gives catalog.ErrNotFound.
func (c *Cluster) Pin(ctx context.Context, p catalog.Pin) (catalog.Pin, error) {
	err := c.pinnable(ctx, p.Backup)
	if err != nil {
		return catalog.Pin{}, err
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	p.Format, p.ID = catalog.Pins.Format, hex.EncodeToString(id)
	data, err := catalog.Pins.Encode(p)
	if err == nil {
		err = c.store.CreateSigned(ctx, catalog.BackupKey(c.store.Cluster, p.Backup, backups.PinPrefix+p.ID+catalog.JSONSuffix), data)
	}
	if err != nil {
		return catalog.Pin{}, fmt.Errorf("pin backup %s: %w", p.Backup, err)
	}
	// Delete stores its tombstone before it looks for pins, and Pin its pin before it looks for tombstones, so at least one of
	// them sees the other's document.
	return p, c.pinnable(ctx, p.Backup)
}

// pinnable returns an error that matches catalog.ErrNotFound unless the backup has a manifest and no tombstone.
func (c *Cluster) pinnable(ctx context.Context, id catalog.ID) error {
	f, err := c.reader.Folder(ctx, id)
	switch {
	case err != nil:
		return fmt.Errorf("pin backup %s: %w", id, err)
	case !f.Has(catalog.ManifestName):
		return fmt.Errorf("backup %s of cluster %s is %w: dr list shows the backups", id, c.store.Cluster, catalog.ErrNotFound)
	case len(f.Tombstones()) > 0:
		return fmt.Errorf("backup %s of cluster %s is %w: it was deleted and its objects will be removed: choose another", id, c.store.Cluster, catalog.ErrNotFound)
	}
	return nil
}

// Pins returns the pins of a backup that hold, oldest first. A missing backup gives catalog.ErrNotFound.
func (c *Cluster) Pins(ctx context.Context, id catalog.ID) ([]catalog.Pin, error) {
	f, err := c.reader.Folder(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read the pins of backup %s: %w", id, err)
	}
	if !f.Has(catalog.ManifestName) {
		return nil, fmt.Errorf("backup %s of cluster %s is %w: dr list shows the backups", id, c.store.Cluster, catalog.ErrNotFound)
	}
	pins, _, err := c.reader.LoadPins(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("read the pins of backup %s: %w", id, err)
	}
	return pins, nil
}

// Unpin lifts all pins of u.Backup, storing one document made from u for each pin, and returns the pins that it has lifted. A
// missing backup gives catalog.ErrNotFound.
func (c *Cluster) Unpin(ctx context.Context, u catalog.Unpin) ([]catalog.Pin, error) {
	pins, err := c.Pins(ctx, u.Backup)
	if err != nil {
		return nil, err
	}
	return c.lift(ctx, u, pins)
}

// UnpinOwn is like Unpin, for the pins that the program with this name has stored.
func (c *Cluster) UnpinOwn(ctx context.Context, u catalog.Unpin, by string) ([]catalog.Pin, error) {
	pins, err := c.Pins(ctx, u.Backup)
	if err != nil {
		return nil, err
	}
	return c.lift(ctx, u, slices.DeleteFunc(pins, func(p catalog.Pin) bool { return p.By != by }))
}

// lift lifts pins of u.Backup, and returns those that it has lifted.
func (c *Cluster) lift(ctx context.Context, u catalog.Unpin, pins []catalog.Pin) ([]catalog.Pin, error) {
	for i, p := range pins {
		err := c.createUnpin(ctx, u, p)
		if err != nil {
			return pins[:i], fmt.Errorf("unpin backup %s: %w", u.Backup, err)
		}
	}
	return pins, nil
}

// createUnpin stores the document that lifts p.
func (c *Cluster) createUnpin(ctx context.Context, u catalog.Unpin, p catalog.Pin) error {
	id, err := c.store.RepositoryID(ctx)
	if err != nil {
		return err
	}
	u.Format, u.Repository, u.Lifts = catalog.Pins.Format, id, p.ID
	data, err := catalog.Unpins.Encode(u)
	if err != nil {
		return err
	}
	key := catalog.BackupKey(c.store.Cluster, u.Backup, backups.UnpinPrefix+p.ID+catalog.JSONSuffix)
	err = c.store.CreateSigned(ctx, key, data)
	if errors.Is(err, storage.ErrExist) { // an invalid document, as the pin still holds
		return fmt.Errorf("%s exists but is invalid: remove it, and try again: %w", key, err)
	}
	return err
}
