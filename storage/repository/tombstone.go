package repository

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// Tombstone says that a backup is deleted. It is an object of its own, so that a backup whose objects are locked can be
// deleted too: it is listed no more, and its objects go when their lock has ended.
type Tombstone struct {
	Format     int        `json:"format"`
	Repository string     `json:"repository"` // the Marker's id
	Backup     catalog.ID `json:"backup"`
	Reason     string     `json:"reason"` // one plain sentence
	Time       time.Time  `json:"time"`
	By         string     `json:"by"` // host and version of dr
}

// Tombstones are the stored tombstones.
var Tombstones = document.Kind[Tombstone]{Format: 1, Check: Tombstone.validate}

func (t Tombstone) validate() error {
	_, err := catalog.ParseID(string(t.Backup))
	return err
}

// Delete takes a backup out of the catalog, by a tombstone, and removes its manifest. Its data goes with the leftovers,
// after their grace. A manifest that is locked gives storage.ErrLocked: the backup is deleted all the same, and its
// objects stay until their lock has ended. A backup that is not there gives ErrNotFound, and one that is pinned ErrPinned.
func (c *Cluster) Delete(ctx context.Context, t Tombstone) error {
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
func (c *Cluster) bury(ctx context.Context, t Tombstone) (key string, err error) {
	t.Format = Tombstones.Format
	if t.Repository, err = c.store.RepositoryID(ctx); err != nil {
		return "", err
	}
	data, err := Tombstones.Encode(t)
	if err != nil {
		return "", err
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	key = catalog.BackupKey(c.store.Cluster, t.Backup, catalog.TombstonePrefix+hex.EncodeToString(id)+catalog.JSONSuffix)
	return key, c.store.CreateSigned(ctx, key, data)
}

func (c *Cluster) deletable(ctx context.Context, id catalog.ID) error {
	f, err := c.reader.folderOf(ctx, id)
	if err != nil {
		return fmt.Errorf("delete backup %s: %w", id, err)
	}
	if !f.has(catalog.ManifestName) {
		return fmt.Errorf("backup %s of cluster %s is %w", id, c.store.Cluster, catalog.ErrNotFound)
	}
	pins, _, err := c.reader.loadPins(ctx, f)
	if err != nil {
		return fmt.Errorf("delete backup %s: %w", id, err)
	}
	if len(pins) > 0 {
		return fmt.Errorf("delete backup %s: %w: dr unpin lifts that", id, ErrPinned)
	}
	return nil
}

// tombstones returns the keys of f's tombstones, whether they count or not.
func (f folder) tombstones() (keys []string) {
	for _, o := range f.objects {
		if isTombstone(path.Base(o.Key)) {
			keys = append(keys, o.Key)
		}
	}
	return keys
}

func isTombstone(name string) bool {
	id, ok := strings.CutPrefix(name, catalog.TombstonePrefix)
	id, isJSON := strings.CutSuffix(id, catalog.JSONSuffix)
	return ok && isJSON && pinID.MatchString(id)
}

// isDeleted reports whether a tombstone of f counts, and no pin holds. Tombstones that are damaged, not trusted, or of
// another repository delete nothing: the error names them and matches ErrDamaged.
func (r *Reader) isDeleted(ctx context.Context, f folder) (bool, error) {
	var counts bool
	var ignored error
	for _, key := range f.tombstones() {
		err := r.checkTombstone(ctx, f.id, key)
		switch {
		case err == nil:
			counts = true
		case errors.Is(err, catalog.ErrDamaged):
			ignored = errors.Join(ignored, err)
		case !records.IsAbsent(err):
			return false, err
		}
	}
	if !counts {
		return false, ignored
	}
	pins, _, err := r.loadPins(ctx, f)
	return len(pins) == 0, err
}

func (r *Reader) checkTombstone(ctx context.Context, id catalog.ID, key string) error {
	data, err := r.store.ReadSigned(ctx, key)
	var t Tombstone
	if err == nil {
		t, err = Tombstones.Decode(data)
	}
	if err == nil && t.Backup != id {
		err = fmt.Errorf("%w: it belongs to backup %s and was moved here", catalog.ErrDamaged, t.Backup)
	}
	if err == nil {
		err = r.store.CheckRepository(ctx, t.Repository)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}
