package backups

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

// LoadOptions select the part of a catalog to read. The zero LoadOptions select all backups, without proofs, pins and log.
type LoadOptions struct {
	Newest int        // the number of backups, newest first by name; 0: all
	Only   catalog.ID // this backup only; "": all
	After  catalog.ID // only backups with a later name than this ID, which need not exist; "": all
	// Imported selects imported backups too. Newest does not count them. A backup in Only is read in any case.
	Imported bool
	Proofs   bool // read proofs and pins
	// Log reads the log. Windows are computed only from the backups that are read. The segments of an index become one folded
	// Segment, see Segment.Folded, so that memory does not grow with their number.
	Log     bool
	Details bool // do not fold the log's segments: each takes about 1 KiB of memory
	Copies  records.Copies
	Collect *Collector // gets the manifests and proofs that are read; nil: nothing does
}

// readers is the largest number of backups or proofs that are read at the same time. Each read takes a round trip and up to 128 KiB, and a
// restore reads all of them before it begins: thousands, if the retention keeps that many.
const readers = 32

// Load reads the manifests of the folders, which must be sorted newest first if o.Copies allows copies. Of o it honors Proofs, Copies and
// Collect. Backups that seen contains unchanged are not read again. The results are parallel to folders. A backup that is damaged, or that
// was deleted since it was listed, has its error in Loaded.Err; any other failure ends Load.
func (r *Reader) Load(ctx context.Context, folders []Folder, o LoadOptions, seen Seen) ([]Loaded, error) {
	loads := make([]Loaded, len(folders))
	indexed, size := r.indexed(folders, o)
	allowed, err := records.NewAllowance(ctx, listedBytes(folders, o.Proofs), size)
	if err != nil {
		return nil, fmt.Errorf("read the catalog of cluster %s: %w", r.Store.Cluster, err)
	}
	defer allowed.Close()
	copies := r.copies(ctx, indexed, size, o)
	err = records.Parallel(ctx, readers, len(folders), func(ctx context.Context, i int) error {
		known, ok := seen.backup(folders[i])
		if ok {
			loads[i].backup = known
			return nil
		}
		f := folders[i]
		f.allowed, f.copies, f.collect = allowed, copies, o.Collect
		loads[i] = r.loadBackup(ctx, f, o.Proofs)
		err := loads[i].Err
		if err != nil && !errors.Is(err, catalog.ErrDamaged) && !records.IsAbsent(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the catalog of cluster %s: %w", r.Store.Cluster, err)
	}
	return loads, nil
}

// listedBytes returns the size of the manifests of the folders and, if proofs is set, of their proofs and pins, as Load counts
// it.
func listedBytes(folders []Folder, proofs bool) (sum int64) {
	for _, f := range folders {
		for _, o := range f.Objects {
			name := path.Base(o.Key)
			if name == catalog.ManifestName || proofs && strings.HasSuffix(name, catalog.JSONSuffix) {
				sum += records.Listed(o.Size)
			}
		}
	}
	return sum
}

// Loaded is the result of reading one backup.
type Loaded struct {
	backup   catalog.Backup
	Unsigned bool    // the manifest has no signature, by any key
	Err      error   // matches catalog.ErrDamaged or storage.ErrNotExist
	ignored  []error // invalid pins and unpins, and unreadable proofs
}

// Catalog returns the catalog of the backups in loads, newest first by their start. The loads must be parallel to folders.
// Backups that were deleted since they were listed are left out. The catalog has no log.
func (r *Reader) Catalog(folders []Folder, loads []Loaded) catalog.Catalog {
	cat := catalog.Catalog{Cluster: r.Store.Cluster, Signed: !r.Store.Policy.Trust.None()}
	for i, f := range folders {
		switch err := loads[i].Err; {
		case records.IsAbsent(err): // deleted since it was listed
			continue
		case errors.Is(err, sign.ErrUntrusted):
			cat.Untrusted = append(cat.Untrusted, catalog.Damage{ID: f.ID, Err: err})
			continue
		case err != nil:
			cat.Damaged = append(cat.Damaged, catalog.Damage{ID: f.ID, Err: err})
			continue
		}
		for _, err := range loads[i].ignored {
			cat.Ignored = append(cat.Ignored, catalog.Damage{ID: f.ID, Err: err})
		}
		if f.ID.IsImport() {
			cat.Imported = append(cat.Imported, loads[i].backup)
		} else {
			cat.Backups = append(cat.Backups, loads[i].backup)
		}
	}
	slices.SortStableFunc(cat.Backups, newestFirst)
	slices.SortStableFunc(cat.Imported, newestFirst)
	return cat
}

func newestFirst(a, b catalog.Backup) int {
	return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(b.Revision, a.Revision), cmp.Compare(b.ID, a.ID))
}

// loadBackup reads one backup and checks its manifest against the listing.
func (r *Reader) loadBackup(ctx context.Context, f Folder, proofs bool) (l Loaded) {
	if f.unlisted != nil {
		l.Err = fmt.Errorf("%s: %w", catalog.Folder(r.Store.Cluster, f.ID), r.untrusted(records.ReadError(f.unlisted)))
		return l
	}
	manifest, _ := f.object(catalog.ManifestName)
	if !f.allowed.Take(manifest.Size) {
		l.Err = records.NotRead(manifest.Key)
		return l
	}
	l.backup.Manifest, l.Unsigned, l.Err = r.loadManifest(ctx, f, manifest)
	if l.Err != nil {
		f.allowed.Return(manifest.Size)
		return l
	}
	l.Err = r.checkStored(f, l.backup.Manifest)
	if l.Err != nil || !proofs {
		return l
	}
	l.backup.Proofs, l.ignored, l.Err = r.loadProofs(ctx, f)
	if l.Err != nil {
		return l
	}
	var ignored []error
	l.backup.Pins, ignored, l.Err = r.LoadPins(ctx, f)
	l.ignored = append(l.ignored, ignored...)
	return l
}

// loadManifest reads the manifest of f. If the policy trusts keys, a damaged manifest is untrusted too: an attacker
// could otherwise plant one, and a damaged newest backup stops every restore of the newest.
func (r *Reader) loadManifest(ctx context.Context, f Folder, o storage.Object) (m catalog.Manifest, unsigned bool, err error) {
	err = r.read(ctx, f, o, func(data []byte, copied bool) (err error) {
		m, err = catalog.Manifests.Decode(data)
		if err == nil && (m.ID != f.ID || m.Cluster != r.Store.Cluster) {
			err = fmt.Errorf("%w: it belongs to backup %s of cluster %s and was moved here", catalog.ErrDamaged, m.ID, m.Cluster)
		}
		if err == nil && copied {
			err = r.checkStored(f, m)
		}
		unsigned = document.Signature(data) == ""
		return err
	})
	if err != nil {
		return catalog.Manifest{}, false, fmt.Errorf("%s: %w", o.Key, r.untrusted(err))
	}
	return m, unsigned, nil
}

// untrusted returns err, which matches sign.ErrUntrusted too if it is damage and the policy trusts keys.
func (r *Reader) untrusted(err error) error {
	if errors.Is(err, catalog.ErrDamaged) && !r.Store.Policy.Trust.None() && !errors.Is(err, sign.ErrUntrusted) {
		return fmt.Errorf("%w: %w", sign.ErrUntrusted, err)
	}
	return err
}

// checkStored returns an error that matches catalog.ErrDamaged unless f lists the object of m with the same size.
func (r *Reader) checkStored(f Folder, m catalog.Manifest) error {
	object, ok := f.object(m.Stored.Name)
	if !ok {
		return fmt.Errorf("%s: %w: the object is missing, although its manifest exists", catalog.BackupKey(r.Store.Cluster, f.ID, m.Stored.Name), catalog.ErrDamaged)
	}
	if object.Size != m.Stored.Size {
		return fmt.Errorf("%s: %w: it has %d bytes, its manifest %d", object.Key, catalog.ErrDamaged, object.Size, m.Stored.Size)
	}
	return nil
}
