package backups

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// IsDeleted reports whether f has a valid tombstone and no pin that holds. A tombstone that is damaged, untrusted, or written
// for another repository deletes nothing: its error matches catalog.ErrDamaged, and the result is valid all the same.
func (r *Reader) IsDeleted(ctx context.Context, f Folder) (bool, error) {
	var counts bool
	var ignored error
	for _, key := range f.Tombstones() {
		err := r.checkTombstone(ctx, f.ID, key)
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
	pins, _, err := r.LoadPins(ctx, f)
	return len(pins) == 0, err
}

// checkTombstone returns nil if the tombstone under key deletes backup id. An invalid one gives an error that matches
// catalog.ErrDamaged.
func (r *Reader) checkTombstone(ctx context.Context, id catalog.ID, key string) error {
	data, err := r.Store.ReadSigned(ctx, key)
	var t catalog.Tombstone
	if err == nil {
		t, err = catalog.Tombstones.Decode(data)
	}
	if err == nil && t.Backup != id {
		err = fmt.Errorf("%w: it belongs to backup %s and was moved here", catalog.ErrDamaged, t.Backup)
	}
	if err == nil {
		err = r.Store.CheckRepository(ctx, t.Repository)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}
