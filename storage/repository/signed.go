package repository

import (
	"context"
	"errors"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// newestIsSigned reports whether the newest manifest that can be read has a signature, of whatever key.
func (r *Reader) newestIsSigned(ctx context.Context) (bool, error) {
	folders, err := r.folders(ctx, LoadOptions{})
	if err != nil {
		return false, err
	}
	for _, f := range slices.Backward(folders) {
		if !f.has(catalog.ManifestName) {
			continue
		}
		data, err := r.store.Read(ctx, catalog.ManifestKey(r.store.Cluster, f.id))
		if records.IsAbsent(err) || errors.Is(err, catalog.ErrDamaged) {
			continue
		}
		return document.Signature(data) != "", err
	}
	return false, nil
}
