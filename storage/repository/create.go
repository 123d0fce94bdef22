package repository

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// FreeID returns id or, if the repository has objects under it, the ID of the first later second without objects.
func (c *Cluster) FreeID(ctx context.Context, id catalog.ID) (catalog.ID, error) {
	for ; ; id = id.Later(time.Second) {
		taken := false
		for _, err := range c.store.Bucket.List(ctx, storage.ListOptions{Prefix: catalog.Folder(c.store.Cluster, id)}) {
			if err != nil {
				return "", fmt.Errorf("name a backup of cluster %s: %w", c.store.Cluster, err)
			}
			taken = true
			break
		}
		if !taken {
			return id, nil
		}
	}
}

// Create stores backup id: it reads sealed to its end, then calls manifest and stores the result. No listing shows the backup
// before its manifest is stored. Create sets Format, ID, Cluster, Seal and Stored of the manifest. The argument about is the
// expected number of bytes, 0 if unknown.
//
// If the manifest cannot be stored, Create removes the data. Data that it cannot remove stays as a leftover for Sweep. The
// errors that a caller can match are storage.ErrExist if the ID is in use, records.ErrUnsigned, records.ErrNoMarker, and
// catalog.ErrNotFound if the data was swept while it was stored.
func (c *Cluster) Create(
	ctx context.Context, id catalog.ID, s seal.Seal, about int64, sealed io.Reader, manifest func() (catalog.Manifest, error),
) (catalog.Backup, error) {
	err := c.store.RefuseUnsigned(ctx)
	if err == nil {
		err = c.store.CheckMarker(ctx)
	}
	if err != nil {
		return catalog.Backup{}, fmt.Errorf("store backup %s: %w", id, err)
	}
	name := catalog.SnapshotName + s.Extension()
	stored := catalog.NewBlobReader(sealed)
	if err := c.store.Create(ctx, catalog.BackupKey(c.store.Cluster, id, name), stored, about); err != nil {
		return catalog.Backup{}, fmt.Errorf("store %s of backup %s: %w", name, id, err)
	}
	m, err := manifest()
	if err != nil {
		c.discard(ctx, catalog.BackupKey(c.store.Cluster, id, name), nil)
		return catalog.Backup{}, err
	}
	m.Format, m.ID, m.Cluster, m.Seal = catalog.Manifests.Format, id, c.store.Cluster, s
	m.Stored = stored.Blob(name)
	data, err := c.commit(ctx, m)
	if err != nil {
		c.discard(ctx, catalog.BackupKey(c.store.Cluster, id, name), data)
		return catalog.Backup{}, err
	}
	if err := c.stillThere(ctx, m); err != nil {
		return catalog.Backup{}, err
	}
	c.store.EnsureMarker(ctx)
	return catalog.Backup{Manifest: m}, nil
}

// stillThere returns an error and removes the manifest if the data of m is missing. This happens when the process was stopped
// for longer than the grace of a prune, which then removed the data as a leftover. A failed request is no proof that data is
// missing.
func (c *Cluster) stillThere(ctx context.Context, m catalog.Manifest) error {
	key := catalog.BackupKey(c.store.Cluster, m.ID, m.Stored.Name)
	_, err := c.store.Bucket.Stat(ctx, key)
	if !records.IsAbsent(err) {
		return nil
	}
	return errors.Join(fmt.Errorf("%s: %w: it was removed as a leftover before the backup was complete: take another one, "+
		"with a longer grace", key, catalog.ErrNotFound), c.store.Bucket.Delete(ctx, catalog.ManifestKey(c.store.Cluster, m.ID), storage.DeleteOptions{}))
}

// commit stores m. It returns the stored bytes, also if the Put failed, for it may have had an effect.
func (c *Cluster) commit(ctx context.Context, m catalog.Manifest) ([]byte, error) {
	data, err := catalog.Manifests.Encode(m)
	if err == nil {
		data, err = document.Sign(data, c.store.Policy.Key)
	}
	if err != nil {
		return nil, fmt.Errorf("manifest of backup %s: %w", m.ID, err)
	}
	if err := c.store.Create(ctx, catalog.ManifestKey(c.store.Cluster, m.ID), bytes.NewReader(data), int64(len(data))); err != nil {
		return data, fmt.Errorf("store the manifest of backup %s: %w", m.ID, err)
	}
	return data, nil
}

// discard removes the data under key unless the stored manifest equals the given one. A Put of the manifest that failed may
// have stored it all the same, if only the answer was lost; its data must stay. Another manifest belongs to a process that
// chose the same ID with another seal, and so has data under another key. discard has 30 s of its own, as ctx may have ended.
func (c *Cluster) discard(ctx context.Context, key string, manifest []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	id, _, _ := catalog.SplitBackupKey(c.store.Cluster, key)
	stored, err := c.store.Read(ctx, catalog.ManifestKey(c.store.Cluster, id))
	if records.IsAbsent(err) || err == nil && !bytes.Equal(stored, manifest) {
		_ = c.store.Bucket.Delete(ctx, key, storage.DeleteOptions{})
	}
}
