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

// Sealed is the sealed data of a backup.
type Sealed struct {
	Seal   seal.Seal
	About  int64 // expected number of bytes; 0: unknown
	Reader io.Reader
}

// Upload stores the data of backup id, which no listing shows before Commit. It reads sealed to its end. The errors that a
// caller can match are storage.ErrExist if the ID is in use, records.ErrUnsigned, and records.ErrNoMarker.
func (c *Cluster) Upload(ctx context.Context, id catalog.ID, sealed Sealed) (Upload, error) {
	err := c.store.RefuseUnsigned(ctx)
	if err == nil {
		err = c.store.CheckMarker(ctx)
	}
	if err != nil {
		return Upload{}, fmt.Errorf("store backup %s: %w", id, err)
	}
	name := catalog.SnapshotName + sealed.Seal.Extension()
	stored := catalog.NewBlobReader(sealed.Reader)
	err = c.store.Create(ctx, catalog.BackupKey(c.store.Cluster, id, name), stored, sealed.About)
	if err != nil {
		return Upload{}, fmt.Errorf("store %s of backup %s: %w", name, id, err)
	}
	return Upload{cluster: c, id: id, seal: sealed.Seal, stored: stored.Blob(name)}, nil
}

// Upload is the data of a backup without a manifest. The caller must Commit or Discard it.
type Upload struct {
	cluster *Cluster
	id      catalog.ID
	seal    seal.Seal
	stored  catalog.Blob
}

func (u Upload) key() string { return catalog.BackupKey(u.cluster.store.Cluster, u.id, u.stored.Name) }

// Commit stores the manifest, so that listings show the backup. It sets Format, ID, Cluster, Seal and Stored of m.
//
// If the manifest cannot be stored, Commit removes the data. Data that it cannot remove stays as a leftover for Sweep. The error
// matches catalog.ErrNotFound if a sweep removed the data before the manifest was stored.
func (u Upload) Commit(ctx context.Context, m catalog.Manifest) (catalog.Backup, error) {
	c := u.cluster
	m.Format, m.ID, m.Cluster, m.Seal, m.Stored = catalog.Manifests.Format, u.id, c.store.Cluster, u.seal, u.stored
	data, err := c.commit(ctx, m)
	if err != nil {
		c.discard(ctx, u.key(), data)
		return catalog.Backup{}, err
	}
	err = c.checkData(ctx, m)
	if err != nil {
		return catalog.Backup{}, err
	}
	c.store.EnsureMarker(ctx)
	return catalog.Backup{Manifest: m}, nil
}

// Discard removes the data. Data that it cannot remove stays as a leftover for Sweep.
func (u Upload) Discard(ctx context.Context) { u.cluster.discard(ctx, u.key(), nil) }

// checkData returns an error and removes the manifest if the data of m is missing. This happens when the process was suspended for
// longer than the grace period of a prune, which then removed the data as a leftover. A failed request does not prove that the data
// is missing.
func (c *Cluster) checkData(ctx context.Context, m catalog.Manifest) error {
	key := catalog.BackupKey(c.store.Cluster, m.ID, m.Stored.Name)
	_, err := c.store.Bucket.Stat(ctx, key)
	if !records.IsAbsent(err) {
		return nil
	}
	return errors.Join(fmt.Errorf("%s: %w: it was removed as a leftover before the backup was complete: take another one, "+
		"with a longer grace period", key, catalog.ErrNotFound), c.store.Bucket.Delete(ctx, catalog.ManifestKey(c.store.Cluster, m.ID), storage.DeleteOptions{}))
}

// commit stores m and returns the manifest's bytes. It returns them even if the Put failed, because it may have stored them.
func (c *Cluster) commit(ctx context.Context, m catalog.Manifest) ([]byte, error) {
	data, err := catalog.Manifests.Encode(m)
	if err == nil {
		data, err = document.Sign(data, c.store.Policy.Key)
	}
	if err != nil {
		return nil, fmt.Errorf("manifest of backup %s: %w", m.ID, err)
	}
	err = c.store.Create(ctx, catalog.ManifestKey(c.store.Cluster, m.ID), bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return data, fmt.Errorf("store the manifest of backup %s: %w", m.ID, err)
	}
	return data, nil
}

// discard removes the data under key unless the stored manifest equals the given one or cannot be read. A failed Put may
// nevertheless have stored the manifest, if only the response was lost; its data must stay. If the store executes that Put only
// after the data is removed, discard removes the manifest too. Another manifest belongs to a process that chose the same ID with
// another seal, and so has data under another key. discard has its own time limit of 30 s, because ctx may have ended.
func (c *Cluster) discard(ctx context.Context, key string, manifest []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	id, _, _ := catalog.SplitBackupKey(c.store.Cluster, key)
	manifestKey := catalog.ManifestKey(c.store.Cluster, id)
	stored, err := c.store.Read(ctx, manifestKey)
	if !records.IsAbsent(err) && (err != nil || bytes.Equal(stored, manifest)) {
		return
	}
	_ = c.store.Bucket.Delete(ctx, key, storage.DeleteOptions{})
	late, err := c.store.Read(ctx, manifestKey)
	if err == nil && bytes.Equal(late, manifest) {
		_ = c.store.Bucket.Delete(ctx, manifestKey, storage.DeleteOptions{})
	}
}
