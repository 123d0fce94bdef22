package repository

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// ErrPinned: somebody has pinned the backup, so that it stays.
var ErrPinned = errors.New("backup is pinned")

const (
	pinPrefix   = "pin-"
	unpinPrefix = "unpin-"
)

var pinID = regexp.MustCompile(`^[0-9a-f]{16}$`)

// Pin pins p.Backup, and returns p with its id. A backup that is not there, or is deleted while it is pinned, gives
// ErrNotFound.
func (c *Cluster) Pin(ctx context.Context, p catalog.Pin) (catalog.Pin, error) {
	if err := c.pinnable(ctx, p.Backup); err != nil {
		return catalog.Pin{}, err
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	p.Format, p.ID = catalog.Pins.Format, hex.EncodeToString(id)
	data, err := catalog.Pins.Encode(p)
	if err == nil {
		err = c.store.CreateSigned(ctx, catalog.BackupKey(c.store.Cluster, p.Backup, pinPrefix+p.ID+catalog.JSONSuffix), data)
	}
	if err != nil {
		return catalog.Pin{}, fmt.Errorf("pin backup %s: %w", p.Backup, err)
	}
	// Whoever prunes looks for pins behind its tombstone: one of the two sees the other.
	return p, c.pinnable(ctx, p.Backup)
}

func (c *Cluster) pinnable(ctx context.Context, id catalog.ID) error {
	f, err := c.reader.folderOf(ctx, id)
	switch {
	case err != nil:
		return fmt.Errorf("pin backup %s: %w", id, err)
	case !f.has(catalog.ManifestName):
		return fmt.Errorf("backup %s of cluster %s is %w: dr list shows what is there", id, c.store.Cluster, catalog.ErrNotFound)
	case len(f.tombstones()) > 0:
		return fmt.Errorf("backup %s of cluster %s is %w: it has been deleted, and its objects go soon", id, c.store.Cluster, catalog.ErrNotFound)
	}
	return nil
}

// Unpin lifts all pins of the backup, by its own word as of u, and returns them.
func (c *Cluster) Unpin(ctx context.Context, u catalog.Unpin) ([]catalog.Pin, error) {
	f, err := c.reader.folderOf(ctx, u.Backup)
	if err != nil {
		return nil, fmt.Errorf("unpin backup %s: %w", u.Backup, err)
	}
	if !f.has(catalog.ManifestName) {
		return nil, fmt.Errorf("backup %s of cluster %s is %w: dr list shows what is there", u.Backup, c.store.Cluster, catalog.ErrNotFound)
	}
	pins, _, err := c.reader.loadPins(ctx, f)
	for i, p := range pins {
		if err == nil {
			err = c.lift(ctx, u, p)
		}
		if err != nil {
			return pins[:i], fmt.Errorf("unpin backup %s: %w", u.Backup, err)
		}
	}
	return pins, err
}

func (c *Cluster) lift(ctx context.Context, u catalog.Unpin, p catalog.Pin) error {
	id, err := c.store.RepositoryID(ctx)
	if err != nil {
		return err
	}
	u.Format, u.Repository, u.Lifts = catalog.Pins.Format, id, p.ID
	data, err := catalog.Unpins.Encode(u)
	if err != nil {
		return err
	}
	key := catalog.BackupKey(c.store.Cluster, u.Backup, unpinPrefix+p.ID+catalog.JSONSuffix)
	err = c.store.CreateSigned(ctx, key, data)
	if errors.Is(err, storage.ErrExist) { // and yet the pin holds
		return fmt.Errorf("%s is there and counts for nothing: remove it, and try again: %w", key, err)
	}
	return err
}

// loadPins reads the pins of a backup that hold, oldest first. One that is not trusted does not, and is named in ignored;
// one that is damaged does where nobody asks for signatures: somebody wanted the backup to stay.
func (r *Reader) loadPins(ctx context.Context, f folder) (pins []catalog.Pin, ignored []error, err error) {
	for _, o := range f.objects {
		id, ok := pinOf(o.Key, pinPrefix)
		if !ok {
			continue
		}
		if !f.allowed.Take(o.Size) {
			pins = append(pins, catalog.Pin{Backup: f.id, ID: id, Reason: "the pin is not read, as there are too many, and holds"})
			continue
		}
		p, err := r.readPin(ctx, f.id, id)
		if err != nil {
			f.allowed.Return(o.Size)
		}
		switch {
		case records.IsAbsent(err):
			continue
		case errors.Is(err, catalog.ErrDamaged) && !r.store.Policy.Trust.None():
			ignored = append(ignored, err)
			continue
		case errors.Is(err, catalog.ErrDamaged):
			p = catalog.Pin{Backup: f.id, ID: id, Reason: "the pin is damaged, and holds"}
		case err != nil:
			return nil, nil, err
		}
		lifted, err := r.isLifted(ctx, f, id)
		if err != nil && !errors.Is(err, catalog.ErrDamaged) {
			return nil, nil, err
		}
		if err != nil {
			ignored = append(ignored, err)
		}
		if !lifted && !p.Ended(time.Now()) {
			pins = append(pins, p)
		}
	}
	slices.SortStableFunc(pins, func(a, b catalog.Pin) int { return a.Time.Compare(b.Time) })
	return pins, ignored, nil
}

// pinOf is the pin's id in a key with that prefix before it.
func pinOf(key, prefix string) (id string, ok bool) {
	name, ok := strings.CutPrefix(path.Base(key), prefix)
	id, isJSON := strings.CutSuffix(name, catalog.JSONSuffix)
	return id, ok && isJSON && pinID.MatchString(id)
}

func (r *Reader) readPin(ctx context.Context, backup catalog.ID, id string) (catalog.Pin, error) {
	key := catalog.BackupKey(r.store.Cluster, backup, pinPrefix+id+catalog.JSONSuffix)
	data, err := r.store.ReadSigned(ctx, key)
	var p catalog.Pin
	if err == nil {
		p, err = catalog.Pins.Decode(data)
	}
	if err == nil && (p.Backup != backup || p.ID != id) {
		err = fmt.Errorf("%w: it is pin %s of backup %s and was moved here", catalog.ErrDamaged, p.ID, p.Backup)
	}
	if err != nil {
		return catalog.Pin{}, fmt.Errorf("%s: %w", key, err)
	}
	return p, nil
}

// isLifted reads what lifts a pin, if it is there. What is damaged, or not signed by one whose tombstones count, lifts
// nothing: the error says so and matches ErrDamaged.
func (r *Reader) isLifted(ctx context.Context, f folder, id string) (bool, error) {
	name := unpinPrefix + id + catalog.JSONSuffix
	if !f.has(name) {
		return false, nil
	}
	key := catalog.BackupKey(r.store.Cluster, f.id, name)
	data, err := r.store.ReadSigned(ctx, key)
	if records.IsAbsent(err) {
		return false, nil
	}
	var u catalog.Unpin
	if err == nil {
		u, err = catalog.Unpins.Decode(data)
	}
	if err == nil && (u.Backup != f.id || u.Lifts != id) {
		err = fmt.Errorf("%w: it lifts pin %s of backup %s and was moved here", catalog.ErrDamaged, u.Lifts, u.Backup)
	}
	if err == nil {
		err = r.store.CheckRepository(ctx, u.Repository)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", key, err)
	}
	return true, nil
}

// folderOf lists the objects of one backup, of which there may be none.
func (r *Reader) folderOf(ctx context.Context, id catalog.ID) (folder, error) {
	folders, err := r.folders(ctx, LoadOptions{Only: id})
	if err != nil || len(folders) == 0 {
		return folder{id: id}, err
	}
	return folders[0], nil
}
