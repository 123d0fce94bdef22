package repository

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// FreeID names a backup that begins at now; if there is already something under that name, it is the next second's.
func (c *Cluster) FreeID(ctx context.Context, now time.Time, revision int64) (catalog.ID, error) {
	for ; ; now = now.Add(time.Second) {
		id := catalog.NewID(now, revision)
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

// Create streams sealed to the place of backup id and, when it has ended, asks for the manifest and stores it: nothing
// is listed before the manifest is there. Format, ID, Cluster, Seal and Stored of the manifest are filled in here. If
// anything fails, what was stored is taken away again; where even that fails it stays behind as a leftover.
// about is how many bytes will come, as far as anybody knows, and 0 where nobody does.
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
	digest := &digester{Reader: sealed, hash: sha256.New()}
	if err := c.store.Create(ctx, catalog.BackupKey(c.store.Cluster, id, name), digest, about); err != nil {
		return catalog.Backup{}, fmt.Errorf("store %s of backup %s: %w", name, id, err)
	}
	m, err := manifest()
	if err != nil {
		c.discard(ctx, catalog.BackupKey(c.store.Cluster, id, name), nil)
		return catalog.Backup{}, err
	}
	m.Format, m.ID, m.Cluster, m.Seal = catalog.Manifests.Format, id, c.store.Cluster, s
	m.Stored = catalog.Blob{Name: name, Size: digest.size, SHA256: hex.EncodeToString(digest.hash.Sum(nil))}
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

// stillThere returns an error and removes the manifest if the data of m is gone: a process that was stopped for longer than the grace
// has been taken for a killed one, and its data for a leftover. A store that does not answer the question proves nothing.
func (c *Cluster) stillThere(ctx context.Context, m catalog.Manifest) error {
	key := catalog.BackupKey(c.store.Cluster, m.ID, m.Stored.Name)
	_, err := c.store.Bucket.Stat(ctx, key)
	if !records.IsAbsent(err) {
		return nil
	}
	return errors.Join(fmt.Errorf("%s: %w: it was removed as a leftover before the backup was complete: take another one, "+
		"with a longer grace", key, catalog.ErrNotFound), c.store.Bucket.Delete(ctx, catalog.ManifestKey(c.store.Cluster, m.ID), storage.DeleteOptions{}))
}

// commit stores m, and returns what it has stored or tried to.
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

// discard removes data that no manifest will ever name. It has its own time: ctx may be what failed. A manifest whose
// Put failed may have been stored all the same (an answer that was lost), and then the data must stay; one that is not
// ours is of another backup, with data of its own.
func (c *Cluster) discard(ctx context.Context, key string, manifest []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	id, _, _ := catalog.SplitBackupKey(c.store.Cluster, key)
	stored, err := c.store.Read(ctx, catalog.ManifestKey(c.store.Cluster, id))
	if records.IsAbsent(err) || err == nil && !bytes.Equal(stored, manifest) {
		_ = c.store.Bucket.Delete(ctx, key, storage.DeleteOptions{})
	}
}

// digester hashes and counts what is read through it.
type digester struct {
	io.Reader
	hash hash.Hash
	size int64
}

func (d *digester) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	d.hash.Write(p[:n])
	d.size += int64(n)
	return n, err
}
