package backups

import (
	"context"
	"errors"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// NewestIsSigned reports whether the newest readable manifest, imported backups aside, has a signature, by any key. It is
// false without backups.
func (r *Reader) NewestIsSigned(ctx context.Context) (bool, error) {
	folders, err := r.Folders(ctx, LoadOptions{})
	if err != nil {
		return false, err
	}
	for _, f := range slices.Backward(folders) {
		if !f.Has(catalog.ManifestName) {
			continue
		}
		data, err := r.Store.Read(ctx, catalog.ManifestKey(r.Store.Cluster, f.ID))
		if records.IsAbsent(err) || errors.Is(err, catalog.ErrDamaged) {
			continue
		}
		return document.Signature(data) != "", err
	}
	return false, nil
}
