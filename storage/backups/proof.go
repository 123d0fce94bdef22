package backups

import (
	"cmp"
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

// unreadProof is a proof of a backup whose manifest is not read.
type unreadProof struct {
	backup catalog.ID
	listed storage.Object // the proof in the listing
}

// UnreadProofs returns the 512 newest proofs that the folders list, newest first by name, without reading them. It returns
// fewer if they have more than records.Small bytes.
func (r *Reader) UnreadProofs(folders []Folder) (unread []unreadProof) {
	for _, f := range folders {
		for _, object := range f.Objects {
			if strings.HasPrefix(path.Base(object.Key), catalog.ProofPrefix) {
				unread = append(unread, unreadProof{f.ID, object})
			}
		}
	}
	slices.SortFunc(unread, func(a, b unreadProof) int {
		return cmp.Or(cmp.Compare(path.Base(b.listed.Key), path.Base(a.listed.Key)), cmp.Compare(b.listed.Key, a.listed.Key))
	})
	unread = unread[:min(mostProofs, len(unread))]
	var size int64
	for i, u := range unread {
		size += records.Listed(u.listed.Size)
		if size > records.Small {
			return unread[:i]
		}
	}
	return unread
}

const mostProofs = 512 // that are read of backups whose manifests are not read

// ReadProofs reads the proofs of a batch; the results are parallel to it. Proofs that seen contains unchanged are not read
// again. Damaged proofs, and proofs deleted since they were listed, are not Ok.
func (r *Reader) ReadProofs(ctx context.Context, batch []unreadProof, seen Seen) ([]SeenProof, error) {
	read := make([]SeenProof, len(batch))
	err := records.Parallel(ctx, readers, len(batch), func(ctx context.Context, i int) (err error) {
		p, u := &read[i], batch[i]
		known := false
		*p, known = seen.proof(u)
		if known {
			return nil
		}
		p.Listed = u.listed
		p.Proof, p.Ok, err = r.ReadProof(ctx, u.backup, u.listed.Key)
		if records.IsAbsent(err) || errors.Is(err, catalog.ErrDamaged) { // pruned since it was listed, or proves nothing
			return nil
		}
		return err
	})
	return read, err
}

// NewestFirst sorts proofs by time, newest first.
func NewestFirst(proofs []catalog.Proof) {
	slices.SortStableFunc(proofs, func(a, b catalog.Proof) int { return b.Time.Compare(a.Time) })
}

// loadProofs returns the proofs of f, oldest first. A damaged or untrusted proof is left out: it proves nothing, and does not
// make the backup worse. An unreadable proof has its error in ignored.
func (r *Reader) loadProofs(ctx context.Context, f Folder) (proofs []catalog.Proof, ignored []error, err error) {
	for _, object := range f.Objects {
		if !strings.HasPrefix(path.Base(object.Key), catalog.ProofPrefix) {
			continue
		}
		if !f.allowed.Take(object.Size) {
			ignored = append(ignored, records.NotRead(object.Key))
			break
		}
		p, ok, err := r.readProof(ctx, f, object)
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

// ReadProof returns the proof of backup id that is stored under key. It is not ok if the proof is damaged, untrusted or of
// another backup. An object that the store refuses to return gives an error that matches catalog.ErrDamaged, a missing one
// storage.ErrNotExist.
func (r *Reader) ReadProof(ctx context.Context, id catalog.ID, key string) (p catalog.Proof, ok bool, err error) {
	return r.readProof(ctx, Folder{ID: id}, storage.Object{Key: key})
}

// readProof is ReadProof for an object that f lists.
func (r *Reader) readProof(ctx context.Context, f Folder, o storage.Object) (p catalog.Proof, ok bool, err error) {
	err = r.read(ctx, f, o, func(data []byte, _ bool) (err error) {
		p, err = catalog.Proofs.Decode(data)
		if err == nil && p.Backup != f.ID {
			err = fmt.Errorf("%w: it is a proof of backup %s", catalog.ErrDamaged, p.Backup)
		}
		return err
	})
	switch {
	case errors.Is(err, catalog.ErrDamaged) && !storage.Unreadable(err):
		return catalog.Proof{}, false, nil
	case err != nil:
		return catalog.Proof{}, false, fmt.Errorf("%s: %w", o.Key, err)
	}
	return p, true, nil
}

// proofName is a proof as its key describes it.
type proofName struct {
	Backup catalog.ID
	Key    string
	Time   time.Time // of the proof, in milliseconds
}

// ProofNames returns all proofs that the folders list, newest first by name, without reading them.
func (r *Reader) ProofNames(folders []Folder) (names []proofName) {
	for _, f := range folders {
		for _, o := range f.Objects {
			stamp, isProof := strings.CutPrefix(strings.TrimSuffix(path.Base(o.Key), catalog.JSONSuffix), catalog.ProofPrefix)
			at, err := time.Parse(ProofTime, stamp)
			if isProof && err == nil {
				names = append(names, proofName{f.ID, o.Key, at})
			}
		}
	}
	slices.SortStableFunc(names, func(a, b proofName) int { return b.Time.Compare(a.Time) })
	return names
}

// ProofTime is the layout of the time in a proof's name, in UTC.
const ProofTime = "20060102T150405.000Z"
