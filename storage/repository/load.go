package repository

import (
	"context"
	"errors"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// Load returns the catalog of the backups that o selects, newest first, with the log if o.Log is set. It lists the backups once
// and reads one manifest for each that is selected, or a copy of it in an index. Damaged and untrusted backups are part of the
// catalog, and no error.
func (c *Cluster) Load(ctx context.Context, o backups.LoadOptions) (catalog.Catalog, error) {
	folders, ignored, err := c.reader.Kept(ctx, o)
	if err != nil {
		return catalog.Catalog{}, err
	}
	folders = newest(folders, o.Newest)
	loads, err := c.reader.Load(ctx, folders, o, backups.Seen{})
	if err != nil {
		return catalog.Catalog{}, err
	}
	if o.Only == "" && len(folders) > 0 && loads[0].Err == nil && loads[0].Unsigned {
		c.store.AllowUnsigned()
	}
	catalog := c.reader.Catalog(folders, loads)
	catalog.Ignored = append(ignored, catalog.Ignored...)
	if !o.Log {
		return catalog, nil
	}
	catalog.Lineages, err = c.log.Load(ctx, log.LoadOptions{Details: o.Details, Copies: o.Copies})
	if err != nil {
		return catalog, err
	}
	return c.withExactWindows(ctx, catalog)
}

// newest returns, of folders sorted newest first, the first n of the live cluster and all of imported backups; all folders if
// n is 0.
func newest(folders []backups.Folder, n int) (left []backups.Folder) {
	if n == 0 {
		return folders
	}
	regular := 0
	for _, f := range folders {
		if !f.ID.IsImport() {
			regular++
		}
		if f.ID.IsImport() || regular <= n {
			left = append(left, f)
		}
	}
	return left
}

// withExactWindows returns cat with the folded segments at the beginnings of windows unfolded, so that the windows count no
// segment too many. Folds that are damaged or missing stay folded: a prune may be removing them.
func (c *Cluster) withExactWindows(ctx context.Context, cat catalog.Catalog) (catalog.Catalog, error) {
	for _, folded := range cat.WindowFolds() {
		segments, err := c.log.Unfold(ctx, folded)
		switch {
		case err == nil:
			cat = cat.Unfold(folded, segments)
		case !errors.Is(err, catalog.ErrDamaged) && !records.IsAbsent(err):
			return cat, err
		}
	}
	return cat, nil
}
