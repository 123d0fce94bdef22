// Package backups reads the backups of one cluster: a folder each, with a manifest, proofs, pins and tombstones. Each document
// is checked when it is read: its signature, its digest, and whether it belongs where it is stored.
package backups

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// Reader reads the backups of one cluster, each from its folder.
type Reader struct{ Store *records.Store }

// kept lists the backups that no tombstone deletes, newest first by their names: all, but as o.Only and o.After say.
func (r *Reader) Kept(ctx context.Context, o LoadOptions) (folders []Folder, ignored []catalog.Damage, err error) {
	if folders, err = r.Folders(ctx, o); err != nil {
		return nil, nil, err
	}
	folders = slices.DeleteFunc(folders, func(f Folder) bool { return !f.Has(catalog.ManifestName) && f.unlisted == nil })
	folders, ignored, err = r.withoutDeleted(ctx, folders)
	slices.Reverse(folders)
	return folders, ignored, err
}

// withoutDeleted leaves out what a tombstone deletes.
func (r *Reader) withoutDeleted(ctx context.Context, folders []Folder) (left []Folder, ignored []catalog.Damage, err error) {
	if !slices.ContainsFunc(folders, func(f Folder) bool { return len(f.Tombstones()) > 0 }) {
		return folders, nil, nil // as most often; a service asks that of many clusters
	}
	deleted, errs := make([]bool, len(folders)), make([]error, len(folders))
	err = records.Parallel(ctx, Readers, len(folders), func(ctx context.Context, i int) error {
		deleted[i], errs[i] = r.IsDeleted(ctx, folders[i])
		if errs[i] != nil && !errors.Is(errs[i], catalog.ErrDamaged) {
			return errs[i]
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the catalog of cluster %s: %w", r.Store.Cluster, err)
	}
	for i, f := range folders {
		if errs[i] != nil {
			ignored = append(ignored, catalog.Damage{ID: f.Id, Err: errs[i]})
		}
		if !deleted[i] {
			left = append(left, f)
		}
	}
	return left, ignored, nil
}

// folder is what the listing shows of one backup.
type Folder struct {
	Id       catalog.ID
	Objects  []storage.Object
	unlisted error              // why its objects cannot be listed; nil: they are
	allowed  *records.Allowance // for its documents
}

func (f Folder) Has(name string) bool {
	_, ok := f.object(name)
	return ok
}

func (f Folder) object(name string) (storage.Object, bool) {
	name = "/" + name
	for _, o := range f.Objects {
		if strings.HasSuffix(o.Key, name) {
			return o, true
		}
	}
	return storage.Object{}, false
}

// folders lists the backups' folders in the order of their names: all, but as o.Only and o.After say.
func (r *Reader) Folders(ctx context.Context, o LoadOptions) ([]Folder, error) {
	list := storage.ListOptions{Prefix: catalog.BackupsPrefix(r.Store.Cluster)}
	if o.Only != "" {
		list.Prefix = catalog.Folder(r.Store.Cluster, o.Only)
	}
	if o.After != "" {
		list.After = catalog.BackupsPrefix(r.Store.Cluster) + string(o.After) + string('/'+1) // behind all that is in its folder
	}
	var folders []Folder
	listed := 0
	last, known := "", false // the folder of the key before, and whether it is a backup's: each is parsed once
	for object, err := range r.Store.Bucket.List(ctx, list) {
		if f, ok := r.unlisted(err); ok {
			folders, last = append(folders, f), ""
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the backups of cluster %s: %w", r.Store.Cluster, err)
		}
		if dir := object.Key[:strings.LastIndexByte(object.Key, '/')+1]; dir != last {
			id, _, ok := catalog.SplitBackupKey(r.Store.Cluster, object.Key)
			last, known = dir, ok
			if n := len(folders); ok && (n == 0 || folders[n-1].Id != id) {
				folders = append(folders, Folder{Id: id, Objects: make([]storage.Object, 0, 2)}) // most have no more
			}
		}
		if known { // else it is a stranger's file
			if listed++; listed > records.MaxListed {
				return nil, records.TooMany(catalog.BackupsPrefix(r.Store.Cluster))
			}
			newest := &folders[len(folders)-1]
			newest.Objects = append(newest.Objects, object)
		}
	}
	return folders, nil
}

// unlisted returns the backup's folder that err leaves out of a listing, if it is one.
func (r *Reader) unlisted(err error) (f Folder, ok bool) {
	u, ok := errors.AsType[*storage.UnlistedError](err)
	if !ok {
		return Folder{}, false
	}
	id, _, ok := catalog.SplitBackupKey(r.Store.Cluster, u.Prefix+catalog.ManifestName)
	return Folder{Id: id, unlisted: err}, ok
}

// touched is the last sign of life: of a backup that was killed, or that somebody has deleted.
func (f Folder) Touched() time.Time {
	last := f.Id.Started()
	for _, o := range f.Objects {
		last = slices.MaxFunc([]time.Time{last, o.ModTime}, time.Time.Compare)
	}
	return last
}

// tombstones returns the keys of f's tombstones, whether they count or not.
func (f Folder) Tombstones() (keys []string) {
	for _, o := range f.Objects {
		if IsTombstone(path.Base(o.Key)) {
			keys = append(keys, o.Key)
		}
	}
	return keys
}

func IsTombstone(name string) bool {
	id, ok := strings.CutPrefix(name, catalog.TombstonePrefix)
	id, isJSON := strings.CutSuffix(id, catalog.JSONSuffix)
	return ok && isJSON && pinID.MatchString(id)
}

// folderOf lists the objects of one backup, of which there may be none.
func (r *Reader) Folder(ctx context.Context, id catalog.ID) (Folder, error) {
	folders, err := r.Folders(ctx, LoadOptions{Only: id})
	if err != nil || len(folders) == 0 {
		return Folder{Id: id}, err
	}
	return folders[0], nil
}
