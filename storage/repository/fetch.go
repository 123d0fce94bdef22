package repository

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Snapshot is the stream of a backup's snapshot.db. The caller must close it.
type Snapshot struct {
	io.ReadCloser
	Key string // fingerprint of the key that decrypts it, "" if it is not encrypted
}

// Fetch returns the snapshot of b, decrypted and decompressed. The stream ends with io.EOF only if the sizes and digests of
// both the sealed and the plain bytes equal those in the manifest. If they differ, the stream ends with an error that matches
// catalog.ErrDamaged and names the object; if the store fails, with the store's error. Without the right key Fetch returns
// seal.ErrWrongKey.
func (c *Cluster) Fetch(ctx context.Context, b catalog.Backup, keys seal.Keys) (Snapshot, error) {
	sealed, err := c.FetchSealed(ctx, b)
	if err != nil {
		return Snapshot{}, err
	}
	opened, err := seal.Open(sealed, b.Seal, keys)
	if err != nil {
		sealed.Close()
		return Snapshot{}, c.damaged(b, err)
	}
	plain := &checked{r: opened, want: b.Plain, hash: sha256.New(), explain: func(err error) error { return c.damaged(b, err) }}
	return Snapshot{&fetched{plain: plain, opened: opened, sealed: sealed}, opened.Key}, nil
}

// FetchSealed returns the stored object of b, still sealed. Its size and digest are checked as in Fetch.
func (c *Cluster) FetchSealed(ctx context.Context, b catalog.Backup) (io.ReadCloser, error) {
	r, _, err := c.store.Bucket.Open(ctx, catalog.BackupKey(c.store.Cluster, b.ID, b.Stored.Name), storage.OpenOptions{})
	if records.IsAbsent(err) {
		return nil, c.damaged(b, fmt.Errorf("%w: the object is missing, although its manifest exists", catalog.ErrDamaged))
	}
	if err != nil {
		return nil, fmt.Errorf("fetch backup %s: %w", b.ID, err)
	}
	check := &checked{r: r, want: b.Stored, hash: sha256.New(), explain: func(err error) error { return c.damaged(b, err) }}
	return struct {
		io.Reader
		io.Closer
	}{check, r}, nil
}

// damaged returns err with the object's key. Damage that the seal found matches catalog.ErrDamaged too.
func (c *Cluster) damaged(b catalog.Backup, err error) error {
	_, named := errors.AsType[*objectError](err)
	if named { // the reader below the seal has added the key
		return err
	}
	return &objectError{key: catalog.BackupKey(c.store.Cluster, b.ID, b.Stored.Name), err: err}
}

// objectError is an error with the key of the object that it is about.
type objectError struct {
	key string
	err error
}

func (e *objectError) Error() string { return e.key + ": " + e.err.Error() }

func (e *objectError) Unwrap() []error {
	if errors.Is(e.err, seal.ErrDamaged) {
		return []error{catalog.ErrDamaged, e.err}
	}
	return []error{e.err}
}

// fetched is the stream of a Fetch.
type fetched struct {
	plain  *checked
	opened io.Closer
	sealed io.ReadCloser
	ended  error // the error of the last Read, which all later ones repeat; nil before the end
}

// Read returns io.EOF only after the sealed stream has ended too: bytes after the last frame are damage.
func (f *fetched) Read(p []byte) (int, error) {
	if f.ended != nil {
		return 0, f.ended
	}
	n, err := f.plain.Read(p)
	if err == io.EOF {
		_, drained := io.Copy(io.Discard, f.sealed)
		if drained != nil {
			err = drained
		}
	}
	f.ended = err
	return n, err
}

func (f *fetched) Close() error {
	f.opened.Close() // before its source
	return f.sealed.Close()
}

// checked reads r, and returns an error instead of io.EOF unless size and digest equal those of want.
type checked struct {
	r       io.Reader
	want    catalog.Blob
	hash    hash.Hash
	size    int64
	explain func(error) error // adds the key of the object to an error
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.hash.Write(p[:n])
	c.size += int64(n)
	if errors.Is(err, seal.ErrDamaged) {
		return n, c.explain(err)
	}
	if c.size > c.want.Size {
		return n, c.explain(fmt.Errorf("%w: %s has more than the %d bytes in its manifest", catalog.ErrDamaged, c.want.Name, c.want.Size))
	}
	if err == io.EOF && c.size < c.want.Size {
		return n, c.explain(fmt.Errorf("%w: %s has %d bytes, its manifest %d", catalog.ErrDamaged, c.want.Name, c.size, c.want.Size))
	}
	if err == io.EOF && hex.EncodeToString(c.hash.Sum(nil)) != c.want.SHA256 {
		return n, c.explain(fmt.Errorf("%w: the sha256 of %s differs from its manifest", catalog.ErrDamaged, c.want.Name))
	}
	return n, err
}
