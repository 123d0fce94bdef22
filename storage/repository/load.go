package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// LoadOptions say how much of a catalog to read.
type LoadOptions struct {
	Newest int        // that many backups, by name; 0: all
	Only   catalog.ID // this one alone; "": as Newest says
	After  catalog.ID // only what comes after it, by name, whether it is there or not; "": from the first one on
	Proofs bool       // read the proofs and the pins too
	// Log reads the log too; windows are found only for the backups that are read. What an index lists is one Segment, see
	// Segment.Folded, so that memory does not grow with each segment.
	Log     bool
	Details bool // of the log nothing is folded: each segment takes a kilobyte of memory
}

const readers = 8 // requests at once; a manifest takes one round trip

// Load reads the catalog: one listing, then the manifests, newest first and only as many as o asks for; and the log's
// headers if o asks for them.
func (c *Cluster) Load(ctx context.Context, o LoadOptions) (catalog.Catalog, error) {
	folders, ignored, err := c.reader.kept(ctx, o)
	if err != nil {
		return catalog.Catalog{}, err
	}
	if o.Newest > 0 && len(folders) > o.Newest {
		folders = folders[:o.Newest]
	}
	loads, err := c.reader.loadBackups(ctx, folders, o.Proofs, Seen{})
	if err != nil {
		return catalog.Catalog{}, err
	}
	if o.Only == "" && len(folders) > 0 && loads[0].err == nil && loads[0].unsigned {
		c.store.AllowUnsigned()
	}
	catalog := c.reader.catalog(folders, loads)
	catalog.Ignored = append(ignored, catalog.Ignored...)
	if !o.Log {
		return catalog, nil
	}
	catalog.Lineages, err = c.log.Load(ctx, o.Details)
	if err != nil {
		return catalog, err
	}
	return c.withExactWindows(ctx, catalog)
}

// withExactWindows unfolds the segments with which the windows of cat begin, so that they count no segment too many. It leaves out
// folds that cannot be read any more, as while they are pruned.
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

// Reader reads the backups of one cluster, each from its folder.
type Reader struct{ store *records.Store }

// kept lists the backups that no tombstone deletes, newest first by their names: all, but as o.Only and o.After say.
func (r *Reader) kept(ctx context.Context, o LoadOptions) (folders []folder, ignored []catalog.Damage, err error) {
	if folders, err = r.folders(ctx, o); err != nil {
		return nil, nil, err
	}
	folders = slices.DeleteFunc(folders, func(f folder) bool { return !f.has(catalog.ManifestName) && f.unlisted == nil })
	folders, ignored, err = r.withoutDeleted(ctx, folders)
	slices.Reverse(folders)
	return folders, ignored, err
}

// loadBackups reads what the folders hold, but for what was seen, with its proofs and pins.
func (r *Reader) loadBackups(ctx context.Context, folders []folder, proofs bool, seen Seen) ([]backupLoad, error) {
	loads := make([]backupLoad, len(folders))
	allowed := records.NewAllowance()
	err := records.Parallel(ctx, readers, len(folders), func(ctx context.Context, i int) error {
		if known, ok := seen.backup(folders[i]); ok {
			loads[i].backup = known
			return nil
		}
		f := folders[i]
		f.allowed = allowed
		loads[i] = r.loadBackup(ctx, f, proofs)
		if err := loads[i].err; err != nil && !errors.Is(err, catalog.ErrDamaged) && !records.IsAbsent(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the catalog of cluster %s: %w", r.store.Cluster, err)
	}
	return loads, nil
}

// withoutDeleted leaves out what a tombstone deletes.
func (r *Reader) withoutDeleted(ctx context.Context, folders []folder) (left []folder, ignored []catalog.Damage, err error) {
	if !slices.ContainsFunc(folders, func(f folder) bool { return len(f.tombstones()) > 0 }) {
		return folders, nil, nil // as most often; a service asks that of many clusters
	}
	deleted, errs := make([]bool, len(folders)), make([]error, len(folders))
	err = records.Parallel(ctx, readers, len(folders), func(ctx context.Context, i int) error {
		deleted[i], errs[i] = r.isDeleted(ctx, folders[i])
		if errs[i] != nil && !errors.Is(errs[i], catalog.ErrDamaged) {
			return errs[i]
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the catalog of cluster %s: %w", r.store.Cluster, err)
	}
	for i, f := range folders {
		if errs[i] != nil {
			ignored = append(ignored, catalog.Damage{ID: f.id, Err: errs[i]})
		}
		if !deleted[i] {
			left = append(left, f)
		}
	}
	return left, ignored, nil
}

// backupLoad is what came of reading one backup.
type backupLoad struct {
	backup   catalog.Backup
	unsigned bool // its manifest has no signature, of whatever key
	err      error
	ignored  []error // pins that do not hold, what lifts none, and proofs that cannot be read
}

func (r *Reader) catalog(folders []folder, loads []backupLoad) catalog.Catalog {
	cat := catalog.Catalog{Cluster: r.store.Cluster, Signed: !r.store.Policy.Trust.None()}
	for i, f := range folders {
		switch err := loads[i].err; {
		case records.IsAbsent(err): // deleted since it was listed
			continue
		case errors.Is(err, sign.ErrUntrusted):
			cat.Untrusted = append(cat.Untrusted, catalog.Damage{ID: f.id, Err: err})
			continue
		case err != nil:
			cat.Damaged = append(cat.Damaged, catalog.Damage{ID: f.id, Err: err})
			continue
		}
		for _, err := range loads[i].ignored {
			cat.Ignored = append(cat.Ignored, catalog.Damage{ID: f.id, Err: err})
		}
		cat.Backups = append(cat.Backups, loads[i].backup)
	}
	slices.SortStableFunc(cat.Backups, func(a, b catalog.Backup) int {
		return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(b.Revision, a.Revision), cmp.Compare(b.ID, a.ID))
	})
	return cat
}

// loadBackup reads one manifest and holds it against the listing.
func (r *Reader) loadBackup(ctx context.Context, f folder, proofs bool) (l backupLoad) {
	if f.unlisted != nil {
		l.err = fmt.Errorf("%s: %w", catalog.Folder(r.store.Cluster, f.id), r.untrusted(records.ReadError(f.unlisted)))
		return l
	}
	manifest, _ := f.object(catalog.ManifestName)
	if !f.allowed.Take(manifest.Size) {
		l.err = records.NotRead(manifest.Key)
		return l
	}
	if l.backup.Manifest, l.unsigned, l.err = r.loadManifest(ctx, f.id); l.err != nil {
		f.allowed.Return(manifest.Size)
		return l
	}
	if l.err = r.checkStored(f, l.backup.Manifest); l.err != nil || !proofs {
		return l
	}
	if l.backup.Proofs, l.ignored, l.err = r.loadProofs(ctx, f); l.err != nil {
		return l
	}
	var ignored []error
	l.backup.Pins, ignored, l.err = r.loadPins(ctx, f)
	l.ignored = append(l.ignored, ignored...)
	return l
}

// loadManifest reads the manifest that is the folder's own. Where only what is signed counts, anything else there is not
// trusted, however it came about: it would otherwise stand for damage, which stops whoever wants the newest.
func (r *Reader) loadManifest(ctx context.Context, id catalog.ID) (m catalog.Manifest, unsigned bool, err error) {
	data, err := r.store.ReadSigned(ctx, catalog.ManifestKey(r.store.Cluster, id))
	if err == nil {
		m, err = catalog.Manifests.Decode(data)
	}
	if err == nil && (m.ID != id || m.Cluster != r.store.Cluster) {
		err = fmt.Errorf("%w: it belongs to backup %s of cluster %s and was moved here", catalog.ErrDamaged, m.ID, m.Cluster)
	}
	if err != nil {
		return catalog.Manifest{}, false, fmt.Errorf("%s: %w", catalog.ManifestKey(r.store.Cluster, id), r.untrusted(err))
	}
	return m, document.Signature(data) == "", nil
}

// untrusted makes damage match sign.ErrUntrusted where only what is signed counts.
func (r *Reader) untrusted(err error) error {
	if errors.Is(err, catalog.ErrDamaged) && !r.store.Policy.Trust.None() && !errors.Is(err, sign.ErrUntrusted) {
		return fmt.Errorf("%w: %w", sign.ErrUntrusted, err)
	}
	return err
}

func (r *Reader) checkStored(f folder, m catalog.Manifest) error {
	object, ok := f.object(m.Stored.Name)
	if !ok {
		return fmt.Errorf("%s: %w: the object is missing, only its manifest is there", catalog.BackupKey(r.store.Cluster, f.id, m.Stored.Name), catalog.ErrDamaged)
	}
	if object.Size != m.Stored.Size {
		return fmt.Errorf("%s: %w: it has %d bytes, its manifest says %d", object.Key, catalog.ErrDamaged, object.Size, m.Stored.Size)
	}
	return nil
}

// loadProofs reads the proofs of one backup. One that is damaged or not trusted proves nothing and is left out: it takes
// nothing away from the backup either. One that cannot be read is named in ignored.
func (r *Reader) loadProofs(ctx context.Context, f folder) (proofs []catalog.Proof, ignored []error, err error) {
	for _, object := range f.objects {
		if !strings.HasPrefix(path.Base(object.Key), catalog.ProofPrefix) {
			continue
		}
		if !f.allowed.Take(object.Size) {
			ignored = append(ignored, records.NotRead(object.Key))
			break
		}
		p, ok, err := r.readProof(ctx, f.id, object.Key)
		if !ok {
			f.allowed.Return(object.Size)
		}
		switch {
		case errors.Is(err, catalog.ErrDamaged):
			ignored = append(ignored, err)
		case err != nil:
			return nil, nil, err
		case ok:
			proofs = append(proofs, p)
		}
	}
	slices.SortStableFunc(proofs, func(a, b catalog.Proof) int { return a.Time.Compare(b.Time) })
	return proofs, ignored, nil
}

// readProof is not ok where what stands there proves nothing. What cannot be read gives ErrDamaged.
func (r *Reader) readProof(ctx context.Context, id catalog.ID, key string) (p catalog.Proof, ok bool, err error) {
	data, err := r.store.ReadSigned(ctx, key)
	switch {
	case errors.Is(err, catalog.ErrDamaged) && !storage.Unreadable(err):
		return catalog.Proof{}, false, nil
	case err != nil:
		return catalog.Proof{}, false, fmt.Errorf("%s: %w", key, err)
	}
	p, err = catalog.Proofs.Decode(data)
	return p, err == nil && p.Backup == id, nil
}

// folder is what the listing shows of one backup.
type folder struct {
	id       catalog.ID
	objects  []storage.Object
	unlisted error              // why its objects cannot be listed; nil: they are
	allowed  *records.Allowance // for its documents
}

func (f folder) has(name string) bool {
	_, ok := f.object(name)
	return ok
}

func (f folder) object(name string) (storage.Object, bool) {
	name = "/" + name
	for _, o := range f.objects {
		if strings.HasSuffix(o.Key, name) {
			return o, true
		}
	}
	return storage.Object{}, false
}

// folders lists the backups' folders in the order of their names: all, but as o.Only and o.After say.
func (r *Reader) folders(ctx context.Context, o LoadOptions) ([]folder, error) {
	list := storage.ListOptions{Prefix: catalog.BackupsPrefix(r.store.Cluster)}
	if o.Only != "" {
		list.Prefix = catalog.Folder(r.store.Cluster, o.Only)
	}
	if o.After != "" {
		list.After = catalog.BackupsPrefix(r.store.Cluster) + string(o.After) + string('/'+1) // behind all that is in its folder
	}
	var folders []folder
	listed := 0
	last, known := "", false // the folder of the key before, and whether it is a backup's: each is parsed once
	for object, err := range r.store.Bucket.List(ctx, list) {
		if f, ok := r.unlisted(err); ok {
			folders, last = append(folders, f), ""
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the backups of cluster %s: %w", r.store.Cluster, err)
		}
		if dir := object.Key[:strings.LastIndexByte(object.Key, '/')+1]; dir != last {
			id, _, ok := catalog.SplitBackupKey(r.store.Cluster, object.Key)
			last, known = dir, ok
			if n := len(folders); ok && (n == 0 || folders[n-1].id != id) {
				folders = append(folders, folder{id: id, objects: make([]storage.Object, 0, 2)}) // most have no more
			}
		}
		if known { // else it is a stranger's file
			if listed++; listed > records.MaxListed {
				return nil, records.TooMany(catalog.BackupsPrefix(r.store.Cluster))
			}
			newest := &folders[len(folders)-1]
			newest.objects = append(newest.objects, object)
		}
	}
	return folders, nil
}

// unlisted returns the backup's folder that err leaves out of a listing, if it is one.
func (r *Reader) unlisted(err error) (f folder, ok bool) {
	u, ok := errors.AsType[*storage.UnlistedError](err)
	if !ok {
		return folder{}, false
	}
	id, _, ok := catalog.SplitBackupKey(r.store.Cluster, u.Prefix+catalog.ManifestName)
	return folder{id: id, unlisted: err}, ok
}
