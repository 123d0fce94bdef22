package backups

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// The names of pins and of the documents that lift them: the prefix, 16 hex digits, ".json".
const (
	PinPrefix   = "pin-"
	UnpinPrefix = "unpin-"
)

// randomID is the form of the random part of the names of pins, unpins and tombstones.
var randomID = regexp.MustCompile(`^[0-9a-f]{16}$`)

// LoadPins returns the pins of f that hold: neither lifted nor expired, oldest first. If the policy trusts keys, a damaged or
// untrusted pin does not hold, and ignored has its error. If it trusts none, a damaged pin holds, as the operator meant
// to keep the backup. Pins beyond the limit of memory hold unread.
func (r *Reader) LoadPins(ctx context.Context, f Folder) (pins []catalog.Pin, ignored []error, err error) {
	for _, o := range f.Objects {
		id, ok := PinOf(o.Key, PinPrefix)
		if !ok {
			continue
		}
		if !f.allowed.Take(o.Size) {
			pins = append(pins, catalog.Pin{Backup: f.ID, ID: id, Reason: "the pin is not read, as there are too many, and holds"})
			continue
		}
		p, err := r.readPin(ctx, f.ID, id)
		if err != nil {
			f.allowed.Return(o.Size)
		}
		switch {
		case records.IsAbsent(err):
			continue
		case errors.Is(err, catalog.ErrDamaged) && !r.Store.Policy.Trust.None():
			ignored = append(ignored, err)
			continue
		case errors.Is(err, catalog.ErrDamaged):
			p = catalog.Pin{Backup: f.ID, ID: id, Reason: "the pin is damaged, and holds"}
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

// PinOf returns the pin's id in the key of a pin (prefix PinPrefix) or an unpin (UnpinPrefix). It is not ok if key is another key.
func PinOf(key, prefix string) (id string, ok bool) {
	name, ok := strings.CutPrefix(path.Base(key), prefix)
	id, isJSON := strings.CutSuffix(name, catalog.JSONSuffix)
	return id, ok && isJSON && randomID.MatchString(id)
}

// readPin returns the pin, which must belong to the backup and have that id.
func (r *Reader) readPin(ctx context.Context, backup catalog.ID, id string) (catalog.Pin, error) {
	key := catalog.BackupKey(r.Store.Cluster, backup, PinPrefix+id+catalog.JSONSuffix)
	data, err := r.Store.ReadSigned(ctx, key)
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

// isLifted reports whether a valid unpin document lifts the pin. One that is damaged, untrusted, or written for another
// repository lifts nothing: its error matches catalog.ErrDamaged.
func (r *Reader) isLifted(ctx context.Context, f Folder, id string) (bool, error) {
	name := UnpinPrefix + id + catalog.JSONSuffix
	if !f.Has(name) {
		return false, nil
	}
	key := catalog.BackupKey(r.Store.Cluster, f.ID, name)
	data, err := r.Store.ReadSigned(ctx, key)
	if records.IsAbsent(err) {
		return false, nil
	}
	var u catalog.Unpin
	if err == nil {
		u, err = catalog.Unpins.Decode(data)
	}
	if err == nil && (u.Backup != f.ID || u.Lifts != id) {
		err = fmt.Errorf("%w: it lifts pin %s of backup %s and was moved here", catalog.ErrDamaged, u.Lifts, u.Backup)
	}
	if err == nil {
		err = r.Store.CheckRepository(ctx, u.Repository)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", key, err)
	}
	return true, nil
}
