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
	"github.com/etcd-dr/etcd-dr/storage/document"
)

// ErrPinned: somebody has pinned the backup, so that it stays.
var ErrPinned = errors.New("backup is pinned")

// Pin keeps a backup from being pruned until it ends or is lifted. Like all state it is an object of its own, and so is what lifts
// it: both work where objects are locked.
type Pin struct {
	Format int       `json:"format"`
	Backup ID        `json:"backup"`
	ID     string    `json:"pin"`    // 16 hex digits, random
	Reason string    `json:"reason"` // one plain sentence, "" if nobody gave one
	Time   time.Time `json:"time"`
	By     string    `json:"by"` // host and version of dr
	// Until is when the pin ends, and counts no more; zero: it holds until it is lifted.
	Until time.Time `json:"until,omitzero"`
	// Confirms: a person has confirmed that the backup's history is the cluster's own, though no restore by dr began it.
	Confirms bool `json:"confirms,omitempty"`
}

// Unpin lifts one pin. Its fields are other ones than a Pin's, so that nobody makes one of a signed pin.
type Unpin struct {
	Format     int       `json:"format"`
	Repository string    `json:"repository"` // the Marker's id
	Backup     ID        `json:"backup"`
	Lifts      string    `json:"lifts"` // the pin's id
	Time       time.Time `json:"time"`
	By         string    `json:"by"` // host and version of dr
}

// Pins are the stored pins, Unpins the documents that lift them.
var (
	Pins   = document.Kind[Pin]{Format: 1}
	Unpins = document.Kind[Unpin]{Format: 1}
)

const (
	pinPrefix   = "pin-"
	unpinPrefix = "unpin-"
)

var pinID = regexp.MustCompile(`^[0-9a-f]{16}$`)

// Pin pins p.Backup, and returns p with its id. A backup that is not there, or is deleted while it is pinned, gives
// ErrNotFound.
func (c *Cluster) Pin(ctx context.Context, p Pin) (Pin, error) {
	if err := c.pinnable(ctx, p.Backup); err != nil {
		return Pin{}, err
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	p.Format, p.ID = Pins.Format, hex.EncodeToString(id)
	data, err := Pins.Encode(p)
	if err == nil {
		err = c.createSigned(ctx, BackupKey(c.name, p.Backup, pinPrefix+p.ID+JSONSuffix), data)
	}
	if err != nil {
		return Pin{}, fmt.Errorf("pin backup %s: %w", p.Backup, err)
	}
	// Whoever prunes looks for pins behind its tombstone: one of the two sees the other.
	return p, c.pinnable(ctx, p.Backup)
}

func (c *Cluster) pinnable(ctx context.Context, id ID) error {
	f, err := c.folderOf(ctx, id)
	switch {
	case err != nil:
		return fmt.Errorf("pin backup %s: %w", id, err)
	case !f.has(ManifestName):
		return fmt.Errorf("backup %s of cluster %s is %w: dr list shows what is there", id, c.name, ErrNotFound)
	case len(f.tombstones()) > 0:
		return fmt.Errorf("backup %s of cluster %s is %w: it has been deleted, and its objects go soon", id, c.name, ErrNotFound)
	}
	return nil
}

// Unpin lifts all pins of the backup, by its own word as of u, and returns them.
func (c *Cluster) Unpin(ctx context.Context, u Unpin) ([]Pin, error) {
	f, err := c.folderOf(ctx, u.Backup)
	if err != nil {
		return nil, fmt.Errorf("unpin backup %s: %w", u.Backup, err)
	}
	if !f.has(ManifestName) {
		return nil, fmt.Errorf("backup %s of cluster %s is %w: dr list shows what is there", u.Backup, c.name, ErrNotFound)
	}
	pins, _, err := c.loadPins(ctx, f)
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

func (c *Cluster) lift(ctx context.Context, u Unpin, p Pin) error {
	id, err := c.mark(ctx)
	if err != nil {
		return err
	}
	u.Format, u.Repository, u.Lifts = Pins.Format, id, p.ID
	data, err := Unpins.Encode(u)
	if err != nil {
		return err
	}
	key := BackupKey(c.name, u.Backup, unpinPrefix+p.ID+JSONSuffix)
	err = c.createSigned(ctx, key, data)
	if errors.Is(err, storage.ErrExist) { // and yet the pin holds
		return fmt.Errorf("%s is there and counts for nothing: remove it, and try again: %w", key, err)
	}
	return err
}

// loadPins reads the pins of a backup that hold, oldest first. One that is not trusted does not, and is named in ignored;
// one that is damaged does where nobody asks for signatures: somebody wanted the backup to stay.
func (c *Cluster) loadPins(ctx context.Context, f folder) (pins []Pin, ignored []error, err error) {
	for _, o := range f.objects {
		id, ok := pinOf(o.Key, pinPrefix)
		if !ok {
			continue
		}
		if !f.allowed.take(o.Size) {
			pins = append(pins, Pin{Backup: f.id, ID: id, Reason: "the pin is not read, as there are too many, and holds"})
			continue
		}
		p, err := c.readPin(ctx, f.id, id)
		if err != nil {
			f.allowed.giveBack(o.Size)
		}
		switch {
		case isAbsent(err):
			continue
		case errors.Is(err, ErrDamaged) && !c.policy.Trust.None():
			ignored = append(ignored, err)
			continue
		case errors.Is(err, ErrDamaged):
			p = Pin{Backup: f.id, ID: id, Reason: "the pin is damaged, and holds"}
		case err != nil:
			return nil, nil, err
		}
		lifted, err := c.isLifted(ctx, f, id)
		if err != nil && !errors.Is(err, ErrDamaged) {
			return nil, nil, err
		}
		if err != nil {
			ignored = append(ignored, err)
		}
		if !lifted && !p.ended(time.Now()) {
			pins = append(pins, p)
		}
	}
	slices.SortStableFunc(pins, func(a, b Pin) int { return a.Time.Compare(b.Time) })
	return pins, ignored, nil
}

// ended reports whether p counts no more.
func (p Pin) ended(now time.Time) bool { return !p.Until.IsZero() && !now.Before(p.Until) }

// pinOf is the pin's id in a key with that prefix before it.
func pinOf(key, prefix string) (id string, ok bool) {
	name, ok := strings.CutPrefix(path.Base(key), prefix)
	id, isJSON := strings.CutSuffix(name, JSONSuffix)
	return id, ok && isJSON && pinID.MatchString(id)
}

func (c *Cluster) readPin(ctx context.Context, backup ID, id string) (Pin, error) {
	key := BackupKey(c.name, backup, pinPrefix+id+JSONSuffix)
	data, err := c.readSigned(ctx, key)
	var p Pin
	if err == nil {
		p, err = Pins.Decode(data)
	}
	if err == nil && (p.Backup != backup || p.ID != id) {
		err = fmt.Errorf("%w: it is pin %s of backup %s and was moved here", ErrDamaged, p.ID, p.Backup)
	}
	if err != nil {
		return Pin{}, fmt.Errorf("%s: %w", key, err)
	}
	return p, nil
}

// isLifted reads what lifts a pin, if it is there. What is damaged, or not signed by one whose tombstones count, lifts
// nothing: the error says so and matches ErrDamaged.
func (c *Cluster) isLifted(ctx context.Context, f folder, id string) (bool, error) {
	name := unpinPrefix + id + JSONSuffix
	if !f.has(name) {
		return false, nil
	}
	key := BackupKey(c.name, f.id, name)
	data, err := c.readSigned(ctx, key)
	if isAbsent(err) {
		return false, nil
	}
	var u Unpin
	if err == nil {
		u, err = Unpins.Decode(data)
	}
	if err == nil && (u.Backup != f.id || u.Lifts != id) {
		err = fmt.Errorf("%w: it lifts pin %s of backup %s and was moved here", ErrDamaged, u.Lifts, u.Backup)
	}
	if err == nil {
		err = c.isHere(ctx, u.Repository)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", key, err)
	}
	return true, nil
}

// folderOf lists the objects of one backup, of which there may be none.
func (c *Cluster) folderOf(ctx context.Context, id ID) (folder, error) {
	folders, err := c.folders(ctx, LoadOptions{Only: id})
	if err != nil || len(folders) == 0 {
		return folder{id: id}, err
	}
	return folders[0], nil
}
