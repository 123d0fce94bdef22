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
	"github.com/etcd-dr/etcd-dr/storage/log"
)

// Survey is the state of a cluster in the repository, gathered without reading every manifest.
type Survey struct {
	catalog.Catalog                  // the newest backups with their proofs, possible bases of the newest windows, and the log
	Kept            int              // number of backups, read or not
	Bytes           int64            // stored bytes of their snapshots
	Oldest          time.Time        // start of the oldest of them, by its name; zero without backups
	Latest          []catalog.Proof  // the latest proofs of any backup, newest first
	Past            []catalog.Backup // older backups that show the histories of the cluster (catalog.Histories); newest first
	Seen            backups.Seen     // to pass in the SurveyOptions of the next survey
}

// SurveyOptions limit the reads of a survey.
type SurveyOptions struct {
	Newest int                               // number of backups to read; 0: all
	Enough func(latest []catalog.Proof) bool // reports whether no older proofs are needed; nil: only those of the backups that are read
	Seen   backups.Seen                      // from an earlier survey under the same Policy; zero: read everything
}

const (
	stretchesTried = 2 // stretches whose bases are read; the newest may have no base yet
	basesTried     = 8 // backups that are read for each of them
)

// Survey reads the o.Newest backups, and derives the rest from the listing. The newest window's From is exact unless more than
// eight backups were taken around its beginning: From may then be too late. The log is folded: the segments and bytes of a window
// may be too high by those of one index.
func (c *Cluster) Survey(ctx context.Context, o SurveyOptions) (Survey, error) {
	folders, ignored, err := c.reader.Kept(ctx, backups.LoadOptions{})
	if err != nil {
		return Survey{}, err
	}
	lineages, err := c.log.Load(ctx, log.LoadOptions{})
	if err != nil {
		return Survey{}, err
	}
	toRead, others := folders, []backups.Folder(nil)
	if o.Newest > 0 && len(folders) > o.Newest {
		toRead, others = slices.Clone(folders[:o.Newest]), folders[o.Newest:]
		bases, rest := possibleBases(others, lineages)
		toRead, others = append(toRead, bases...), rest
	}
	past := historyBoundaries(folders, others)
	loads, err := c.reader.Load(ctx, slices.Concat(toRead, past), backups.LoadOptions{Proofs: true}, o.Seen)
	if err != nil {
		return Survey{}, err
	}
	read := len(toRead)
	s := Survey{Catalog: c.reader.Catalog(toRead, loads[:read]), Past: c.reader.Catalog(past, loads[read:]).Backups, Kept: len(folders)}
	s.Seen.SeeBackups(slices.Concat(toRead, past), loads)
	s.Ignored, s.Lineages = append(ignored, s.Ignored...), lineages
	s.count(folders)
	err = s.readProofs(ctx, c, others, o)
	return s, err
}

// count sets Oldest and Bytes from the folders, newest first.
func (s *Survey) count(folders []backups.Folder) {
	n := len(folders)
	if n > 0 {
		s.Oldest = folders[n-1].ID.Started()
	}
	for _, f := range folders {
		for _, object := range f.Objects {
			if strings.HasPrefix(path.Base(object.Key), catalog.SnapshotName) {
				s.Bytes += object.Size
			}
		}
	}
}

// possibleBases splits folders, newest first, into the possible bases of the newest stretches and the rest. The bases are the
// first backups that began after the beginning of a stretch, or at most catalog.ClockAllowance before it, as the clocks of two
// hosts differ.
func possibleBases(folders []backups.Folder, lineages []catalog.Lineage) (bases, rest []backups.Folder) {
	var stretches []catalog.Stretch
	for _, l := range lineages {
		stretches = append(stretches, l.Stretches()...)
	}
	wanted := map[catalog.ID]bool{}
	for _, s := range stretches[max(0, len(stretches)-stretchesTried):] {
		left, since := basesTried, s.Segments[0].Begins().Add(-catalog.ClockAllowance)
		for _, f := range slices.Backward(folders) {
			if left > 0 && !f.ID.Started().Before(since) {
				wanted[f.ID] = true
				left--
			}
		}
	}
	if len(wanted) == 0 {
		return nil, folders
	}
	for _, f := range folders {
		if wanted[f.ID] {
			bases = append(bases, f)
		} else {
			rest = append(rest, f)
		}
	}
	return bases, rest
}

const proofsAtOnce = 8 // proofs that are read before SurveyOptions.Enough is asked again

const maxPast = 64 // manifests that are read for Survey.Past

// historyBoundaries returns the folders of others that show, together with the newest folders, the cluster's histories: the
// oldest backup, the pinned ones, and the last one before and the first one after each fall of the revision. Revisions are those
// in the names of folders; folders and others are newest first.
func historyBoundaries(folders, others []backups.Folder) (past []backups.Folder) {
	unread := map[catalog.ID]bool{}
	for _, f := range others {
		unread[f.ID] = true
	}
	for i, f := range folders {
		oldest := i == len(folders)-1
		falls := i > 0 && folders[i-1].ID.Revision() < f.ID.Revision() || !oldest && f.ID.Revision() < folders[i+1].ID.Revision()
		pinned := slices.ContainsFunc(f.Objects, func(o storage.Object) bool { _, ok := backups.PinOf(o.Key, backups.PinPrefix); return ok })
		if unread[f.ID] && (oldest || falls || pinned) {
			past = append(past, f)
		}
	}
	n := len(past)
	if n > maxPast { // the oldest must stay
		past = append(past[:maxPast-1], past[n-1])
	}
	return past
}

// readProofs sets Latest: the proofs of the backups that were read, then those of the others, newest first by name, until o.Enough
// returns true.
func (s *Survey) readProofs(ctx context.Context, c *Cluster, others []backups.Folder, o SurveyOptions) error {
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
		batch := unread[:min(proofsAtOnce, len(unread))]
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
