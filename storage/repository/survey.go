package repository

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Survey is how a cluster stands in the repository, seen without reading all that is there.
type Survey struct {
	catalog.Catalog                  // the newest backups with their proofs, those that the newest window may begin with, and the log
	Kept            int              // backups, whether they were read or not
	Bytes           int64            // of them, as stored
	Oldest          time.Time        // when the oldest of them began, by its name; zero if there is none
	Latest          []catalog.Proof  // of whichever backup, newest first
	Past            []catalog.Backup // older ones that show which histories there are, see Histories; newest first
	Seen            backups.Seen     // for the next survey
}

// SurveyOptions say how much to read.
type SurveyOptions struct {
	Newest int                               // backups; 0: all
	Enough func(latest []catalog.Proof) bool // no older proofs need be read; nil: those of the backups that are read will do
	Seen   backups.Seen                      // by an earlier survey under the same Policy
}

const (
	stretchesTried = 2 // the newest may have no base yet
	basesTried     = 8 // for the beginning of each
)

// Survey reads the newest backups, and of the others what the listing tells. The newest window's From is exact unless many
// backups were taken within minutes of its beginning; then it may be later than it could be. Of the log it keeps what tells
// windows from gaps: what a window says that it has of segments and bytes may be more than that by an index.
func (c *Cluster) Survey(ctx context.Context, o SurveyOptions) (Survey, error) {
	folders, ignored, err := c.reader.Kept(ctx, backups.LoadOptions{})
	if err != nil {
		return Survey{}, err
	}
	lineages, err := c.log.Load(ctx, false)
	if err != nil {
		return Survey{}, err
	}
	toRead, others := folders, []backups.Folder(nil)
	if o.Newest > 0 && len(folders) > o.Newest {
		toRead, others = slices.Clone(folders[:o.Newest]), folders[o.Newest:]
		bases, rest := beginnings(others, lineages)
		toRead, others = append(toRead, bases...), rest
	}
	past := landmarks(folders, others)
	loads, err := c.reader.Load(ctx, slices.Concat(toRead, past), true, o.Seen)
	if err != nil {
		return Survey{}, err
	}
	read := len(toRead)
	s := Survey{Catalog: c.reader.Catalog(toRead, loads[:read]), Past: c.reader.Catalog(past, loads[read:]).Backups, Kept: len(folders)}
	s.Seen.SeeBackups(slices.Concat(toRead, past), loads)
	s.Ignored, s.Lineages = append(ignored, s.Ignored...), lineages
	s.count(folders)
	err = s.prove(ctx, c, others, o)
	return s, err
}

func (s *Survey) count(folders []backups.Folder) {
	if n := len(folders); n > 0 {
		s.Oldest = folders[n-1].Id.Started()
	}
	for _, f := range folders {
		for _, object := range f.Objects {
			if strings.HasPrefix(path.Base(object.Key), catalog.SnapshotName) {
				s.Bytes += object.Size
			}
		}
	}
}

// beginnings takes out of folders, newest first, those that the newest stretches may begin with: the first that began after
// them, or before by a clock that is not theirs.
func beginnings(folders []backups.Folder, lineages []catalog.Lineage) (bases, rest []backups.Folder) {
	var stretches []catalog.Stretch
	for _, l := range lineages {
		stretches = append(stretches, l.Stretches()...)
	}
	wanted := map[catalog.ID]bool{}
	for _, s := range stretches[max(0, len(stretches)-stretchesTried):] {
		left, since := basesTried, s.Segments[0].Begins().Add(-catalog.ClockAllowance)
		for _, f := range slices.Backward(folders) {
			if left > 0 && !f.Id.Started().Before(since) {
				wanted[f.Id] = true
				left--
			}
		}
	}
	if len(wanted) == 0 {
		return nil, folders
	}
	for _, f := range folders {
		if wanted[f.Id] {
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
func landmarks(folders, others []backups.Folder) (past []backups.Folder) {
	unread := map[catalog.ID]bool{}
	for _, f := range others {
		unread[f.Id] = true
	}
	for i, f := range folders {
		oldest := i == len(folders)-1
		falls := i > 0 && folders[i-1].Id.Revision() < f.Id.Revision() || !oldest && f.Id.Revision() < folders[i+1].Id.Revision()
		pinned := slices.ContainsFunc(f.Objects, func(o storage.Object) bool { _, ok := backups.PinOf(o.Key, backups.PinPrefix); return ok })
		if unread[f.Id] && (oldest || falls || pinned) {
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
func (s *Survey) prove(ctx context.Context, c *Cluster, others []backups.Folder, o SurveyOptions) error {
	for _, b := range s.Backups {
		s.Latest = append(s.Latest, b.Proofs...)
	}
	backups.NewestFirst(s.Latest)
	if o.Enough == nil {
		return nil
	}
	s.Seen.Proofs = map[string]backups.SeenProof{}
	unread := c.reader.UnreadProofs(others)
	for !o.Enough(s.Latest) && len(unread) > 0 {
		batch := unread[:min(backups.Readers, len(unread))]
		unread = unread[len(batch):]
		read, err := c.reader.ReadProofs(ctx, batch, o.Seen)
		if err != nil {
			return fmt.Errorf("read the proofs of cluster %s: %w", c.store.Cluster, err)
		}
		for _, r := range read {
			s.Seen.Proofs[r.Listed.Key] = r
			if r.Ok {
				s.Latest = append(s.Latest, r.Proof)
			}
		}
		backups.NewestFirst(s.Latest)
	}
	return nil
}
