// Package backups reads the backups of one cluster. Each backup has a folder with a snapshot, a manifest, proofs, pins and
// tombstones. A Reader lists the folders and reads their documents. It checks the signature of each document that it uses, and
// that the document belongs to the folder that contains it.
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

// Reader reads the backups of the cluster whose documents are in Store.
type Reader struct{ Store *records.Store }

// Kept returns the folders that have a manifest and are not deleted, newest first by name. It honors the options that Folders
// honors. A folder that the store cannot list is included. Tombstones that do not count are in ignored; their errors match
// catalog.ErrDamaged.
func (r *Reader) Kept(ctx context.Context, o LoadOptions) (folders []Folder, ignored []catalog.Damage, err error) {
	folders, err = r.Folders(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	folders = slices.DeleteFunc(folders, func(f Folder) bool { return !f.Has(catalog.ManifestName) && f.unlisted == nil })
	folders, ignored, err = r.withoutDeleted(ctx, folders)
	slices.Reverse(folders)
	return folders, ignored, err
}

// withoutDeleted returns the folders that are not deleted, see IsDeleted.
func (r *Reader) withoutDeleted(ctx context.Context, folders []Folder) (left []Folder, ignored []catalog.Damage, err error) {
	if !slices.ContainsFunc(folders, func(f Folder) bool { return len(f.Tombstones()) > 0 }) {
		return folders, nil, nil // the usual case; a service lists many clusters
	}
	deleted, errs := make([]bool, len(folders)), make([]error, len(folders))
	err = records.Parallel(ctx, readers, len(folders), func(ctx context.Context, i int) error {
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
			ignored = append(ignored, catalog.Damage{ID: f.ID, Err: errs[i]})
		}
		if !deleted[i] {
			left = append(left, f)
		}
	}
	return left, ignored, nil
}

// Folder is one backup as the store lists it. None of its objects has been read.
type Folder struct {
	ID       catalog.ID
	Objects  []storage.Object
	unlisted error              // why the store cannot list the objects; nil if it can
	allowed  *records.Allowance // limits the bytes of documents; nil: no limit
	copies   map[string][]byte  // by key, of documents in any folder
	collect  *Collector         // gets the documents that are read; nil: nothing does
}

// Has reports whether the listing contains the object called name, without its folder.
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

// Folders returns the folders of all backups, complete or not, oldest first by name. It honors o.Only, o.After and
// o.Imported and ignores the other options. Objects of other programs are skipped. More than records.MaxListed objects are an error.
func (r *Reader) Folders(ctx context.Context, o LoadOptions) ([]Folder, error) {
	list := storage.ListOptions{Prefix: catalog.BackupsPrefix(r.Store.Cluster)}
	if o.Only != "" {
		list.Prefix = catalog.Folder(r.Store.Cluster, o.Only)
	}
	if o.After != "" {
		list.After = catalog.BackupsPrefix(r.Store.Cluster) + string(o.After) + string('/'+1) // after every key in its folder
	}
	var folders []Folder
	listed := 0
	last, known := "", false // the folder of the previous key, and whether it is that of a backup: each folder is parsed once
	for object, err := range r.Store.Bucket.List(ctx, list) {
		f, ok := r.unlisted(err)
		if ok {
			folders, last = append(folders, f), ""
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the backups of cluster %s: %w", r.Store.Cluster, err)
		}
		dir := object.Key[:strings.LastIndexByte(object.Key, '/')+1]
		if dir != last {
			id, _, ok := catalog.SplitBackupKey(r.Store.Cluster, object.Key)
			last, known = dir, ok
			n := len(folders)
			if ok && (n == 0 || folders[n-1].ID != id) {
				folders = append(folders, Folder{ID: id, Objects: make([]storage.Object, 0, 2)}) // most backups have two objects
			}
		}
		if known { // if not, another program has written the object
			listed++
			if listed > records.MaxListed {
				return nil, records.TooMany(catalog.BackupsPrefix(r.Store.Cluster))
			}
			newest := &folders[len(folders)-1]
			newest.Objects = append(newest.Objects, object)
		}
	}
	if !o.Imported && o.Only == "" {
		folders = slices.DeleteFunc(folders, func(f Folder) bool { return f.ID.IsImport() })
	}
	return folders, nil
}

// unlisted returns the folder of the backup that a listing skipped with err. It is not ok if err is another error, or the
// skipped prefix is not a backup's.
func (r *Reader) unlisted(err error) (f Folder, ok bool) {
	u, ok := errors.AsType[*storage.UnlistedError](err)
	if !ok {
		return Folder{}, false
	}
	id, _, ok := catalog.SplitBackupKey(r.Store.Cluster, u.Prefix+catalog.ManifestName)
	return Folder{ID: id, unlisted: err}, ok
}

// Touched returns the time of the last write to f: the latest of its objects' times and the time in its name.
func (f Folder) Touched() time.Time {
	last := f.ID.Started()
	for _, o := range f.Objects {
		last = slices.MaxFunc([]time.Time{last, o.ModTime}, time.Time.Compare)
	}
	return last
}

// Tombstones returns the keys of f's tombstones, whether they are valid or not.
func (f Folder) Tombstones() (keys []string) {
	for _, o := range f.Objects {
		if IsTombstone(path.Base(o.Key)) {
			keys = append(keys, o.Key)
		}
	}
	return keys
}

// IsTombstone reports whether name, without its folder, is the name of a backup's tombstone.
func IsTombstone(name string) bool {
	id, ok := strings.CutPrefix(name, catalog.TombstonePrefix)
	id, isJSON := strings.CutSuffix(id, catalog.JSONSuffix)
	return ok && isJSON && randomID.MatchString(id)
}

// Folder returns the folder of the backup called id. It has no objects if the backup does not exist.
func (r *Reader) Folder(ctx context.Context, id catalog.ID) (Folder, error) {
	folders, err := r.Folders(ctx, LoadOptions{Only: id})
	if err != nil || len(folders) == 0 {
		return Folder{ID: id}, err
	}
	return folders[0], nil
}
