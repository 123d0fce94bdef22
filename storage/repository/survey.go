package repository

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

// Survey is how a cluster stands in the repository, seen without reading all that is there.
type Survey struct {
	catalog.Catalog                  // the newest backups with their proofs, those that the newest window may begin with, and the log
	Kept            int              // backups, whether they were read or not
	Bytes           int64            // of them, as stored
	Oldest          time.Time        // when the oldest of them began, by its name; zero if there is none
	Latest          []catalog.Proof  // of whichever backup, newest first
	Past            []catalog.Backup // older ones that show which histories there are, see Histories; newest first
	Seen            Seen             // for the next survey
}

// SurveyOptions say how much to read.
type SurveyOptions struct {
	Newest int                               // backups; 0: all
	Enough func(latest []catalog.Proof) bool // no older proofs need be read; nil: those of the backups that are read will do
	Seen   Seen                              // by an earlier survey under the same Policy
}

const (
	mostProofs = 512 // are read of backups that are not

	stretchesTried = 2 // the newest may have no base yet
	basesTried     = 8 // for the beginning of each
)

// Survey reads the newest backups, and of the others what the listing tells. The newest window's From is exact unless many
// backups were taken within minutes of its beginning; then it may be later than it could be. Of the log it keeps what tells
// windows from gaps: what a window says that it has of segments and bytes may be more than that by an index.
func (c *Cluster) Survey(ctx context.Context, o SurveyOptions) (Survey, error) {
	folders, ignored, err := c.reader.kept(ctx, LoadOptions{})
	if err != nil {
		return Survey{}, err
	}
	lineages, err := c.log.Load(ctx, false)
	if err != nil {
		return Survey{}, err
	}
	toRead, others := folders, []folder(nil)
	if o.Newest > 0 && len(folders) > o.Newest {
		toRead, others = slices.Clone(folders[:o.Newest]), folders[o.Newest:]
		bases, rest := beginnings(others, lineages)
		toRead, others = append(toRead, bases...), rest
	}
	past := landmarks(folders, others)
	loads, err := c.reader.loadBackups(ctx, slices.Concat(toRead, past), true, o.Seen)
	if err != nil {
		return Survey{}, err
	}
	read := len(toRead)
	s := Survey{Catalog: c.reader.catalog(toRead, loads[:read]), Past: c.reader.catalog(past, loads[read:]).Backups, Kept: len(folders)}
	s.Seen.seeBackups(slices.Concat(toRead, past), loads)
	s.Ignored, s.Lineages = append(ignored, s.Ignored...), lineages
	s.count(folders)
	err = s.prove(ctx, c, others, o)
	return s, err
}

func (s *Survey) count(folders []folder) {
	if n := len(folders); n > 0 {
		s.Oldest = folders[n-1].id.Started()
	}
	for _, f := range folders {
		for _, object := range f.objects {
			if strings.HasPrefix(path.Base(object.Key), catalog.SnapshotName) {
				s.Bytes += object.Size
			}
		}
	}
}

// beginnings takes out of folders, newest first, those that the newest stretches may begin with: the first that began after
// them, or before by a clock that is not theirs.
func beginnings(folders []folder, lineages []catalog.Lineage) (bases, rest []folder) {
	var stretches []catalog.Stretch
	for _, l := range lineages {
		stretches = append(stretches, l.Stretches()...)
	}
	wanted := map[catalog.ID]bool{}
	for _, s := range stretches[max(0, len(stretches)-stretchesTried):] {
		left, since := basesTried, s.Segments[0].Begins().Add(-catalog.ClockAllowance)
		for _, f := range slices.Backward(folders) {
			if left > 0 && !f.id.Started().Before(since) {
				wanted[f.id] = true
				left--
			}
		}
	}
	if len(wanted) == 0 {
		return nil, folders
	}
	for _, f := range folders {
		if wanted[f.id] {
			bases = append(bases, f)
		} else {
			rest = append(rest, f)
		}
	}
	return bases, rest
}

const mostLandmarks = 64

// landmarks returns those of others that show, with the newest, which histories there are: the oldest, those that are pinned,
// and both sides of each place where the revisions in the names of all folders, newest first, fall.
func landmarks(folders, others []folder) (past []folder) {
	unread := map[catalog.ID]bool{}
	for _, f := range others {
		unread[f.id] = true
	}
	for i, f := range folders {
		oldest := i == len(folders)-1
		falls := i > 0 && folders[i-1].id.Revision() < f.id.Revision() || !oldest && f.id.Revision() < folders[i+1].id.Revision()
		pinned := slices.ContainsFunc(f.objects, func(o storage.Object) bool { _, ok := pinOf(o.Key, pinPrefix); return ok })
		if unread[f.id] && (oldest || falls || pinned) {
			past = append(past, f)
		}
	}
	if n := len(past); n > mostLandmarks { // the oldest in any case
		past = append(past[:mostLandmarks-1], past[n-1])
	}
	return past
}

// prove finds the latest proofs: those of the backups, which were read, and of the others as many as are needed until it is
// enough.
func (s *Survey) prove(ctx context.Context, c *Cluster, others []folder, o SurveyOptions) error {
	for _, b := range s.Backups {
		s.Latest = append(s.Latest, b.Proofs...)
	}
	newestFirst(s.Latest)
	if o.Enough == nil {
		return nil
	}
	s.Seen.proofs = map[string]seenProof{}
	unread := c.reader.unreadProofs(others)
	for !o.Enough(s.Latest) && len(unread) > 0 {
		batch := unread[:min(readers, len(unread))]
		unread = unread[len(batch):]
		read, err := c.reader.readProofs(ctx, batch, o.Seen)
		if err != nil {
			return fmt.Errorf("read the proofs of cluster %s: %w", c.store.Cluster, err)
		}
		for _, r := range read {
			s.Seen.proofs[r.listed.Key] = r
			if r.ok {
				s.Latest = append(s.Latest, r.proof)
			}
		}
		newestFirst(s.Latest)
	}
	return nil
}

// unreadProof is one of a backup that was not read.
type unreadProof struct {
	of     catalog.ID
	listed storage.Object
}

// unreadProofs are the newest, newest first by their names.
func (r *Reader) unreadProofs(folders []folder) (unread []unreadProof) {
	for _, f := range folders {
		for _, object := range f.objects {
			if strings.HasPrefix(path.Base(object.Key), catalog.ProofPrefix) {
				unread = append(unread, unreadProof{f.id, object})
			}
		}
	}
	slices.SortFunc(unread, func(a, b unreadProof) int {
		return cmp.Or(cmp.Compare(path.Base(b.listed.Key), path.Base(a.listed.Key)), cmp.Compare(b.listed.Key, a.listed.Key))
	})
	return unread[:min(mostProofs, len(unread))]
}

// readProofs reads those of a batch that were not seen.
func (r *Reader) readProofs(ctx context.Context, batch []unreadProof, seen Seen) ([]seenProof, error) {
	read := make([]seenProof, len(batch))
	err := records.Parallel(ctx, readers, len(batch), func(ctx context.Context, i int) (err error) {
		p, u := &read[i], batch[i]
		known := false
		if *p, known = seen.proof(u); known {
			return nil
		}
		p.listed = u.listed
		p.proof, p.ok, err = r.readProof(ctx, u.of, u.listed.Key)
		if records.IsAbsent(err) || errors.Is(err, catalog.ErrDamaged) { // pruned since it was listed, or of no use
			return nil
		}
		return err
	})
	return read, err
}

func newestFirst(proofs []catalog.Proof) {
	slices.SortStableFunc(proofs, func(a, b catalog.Proof) int { return b.Time.Compare(a.Time) })
}
