package swap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Stage builds the new data of p next to the live data, which etcd may still be using. If there is none, it first puts blockers in its
// place, which stay there after an error. run is restore.Spawn, or another way to carry out a plan. The plan places one member in the data
// dir of s. New data of an earlier plan is removed.
func (s *Swap) Stage(p plan.Plan, run func(plan.Plan) (restore.Result, error)) (restore.Result, error) {
	lock, err := s.begin(p)
	if err != nil {
		return restore.Result{}, err
	}
	defer lock.Close()
	staged := p
	staged.Into = s.Into(p.Into.Name)
	staged.OldIsDead = true // skip the check here: Switch asks the old members before CloseLive
	result, err := run(staged)
	if err != nil {
		return restore.Result{}, errors.Join(err, s.removeUnstaged())
	}
	for i, m := range p.DataDirs() {
		result.Members[i].DataDir = p.Into.DataDir
		result.Members[i].Command = p.Command(m.Member, p.Into.DataDir)
	}
	return result, s.complete(Record{ID: s.ID, DataDir: s.DataDir, WALDir: s.WALDir, Plan: p, Result: &result})
}

// complete gives the new data the owner of the old or of the empty data dir, makes the blockers, and records that the new data is complete.
func (s *Swap) complete(r Record) error {
	before, err := s.Record()
	if err != nil {
		return err
	}
	r.Old, r.Guarded = before.Old, before.Guarded
	r.New, err = identify(s.aside(newName))
	if err != nil {
		return err
	}
	if r.Old != nil {
		err = s.adopt() // again before the exchange: a failure is known now, while etcd still runs
	} else {
		err = s.inherit()
	}
	if err != nil {
		return err
	}
	for _, p := range s.places() {
		err := p.prepare()
		if err != nil {
			return err
		}
	}
	r.Files, err = fileStates(s.newDirs())
	if err != nil {
		return err
	}
	return s.write(r)
}

// prepare makes the blockers that the exchanges will put in place.
func (p place) prepare() error {
	for _, name := range []string{oldName, failedName} {
		if exists(p.at(name)) {
			continue
		}
		err := p.block(p.at(name))
		if err != nil {
			return err
		}
	}
	return nil
}

// begin makes and locks the folders for the new data of p. It makes the log's folder only after the record names it, so that Clean
// finds that folder after a kill. On error it calls removeUnstaged.
func (s *Swap) begin(p plan.Plan) (*fileutil.LockedFile, error) {
	err := finishClean(s.ID, s.DataDir, s.WALDir, nil)
	if err != nil {
		return nil, err
	}
	err = s.data.makeFolder()
	if err != nil {
		return nil, err
	}
	lock, err := s.lockFolder()
	if err != nil {
		return nil, err
	}
	err = s.startOver(p)
	if err != nil {
		return nil, errors.Join(err, s.removeUnstaged(), lock.Close())
	}
	return lock, nil
}

// removeUnstaged removes the folders if they have no complete data, and no blocker is live. A folder left in a mount point would make a
// later restore without --replace refuse that target.
func (s *Swap) removeUnstaged() error {
	f, err := s.facts()
	if err != nil || f.State() != Unstaged {
		return nil // the folders may have data, or err is already the caller's error
	}
	return s.remove()
}

// startOver records p, makes the folders, and removes the new data of an earlier plan. Without old data it makes the blockers. It refuses a
// file system that cannot exchange two names.
func (s *Swap) startOver(p plan.Plan) error {
	f, err := s.facts()
	if err != nil {
		return err
	}
	if !f.stageable() {
		return s.unstageable(f)
	}
	old, err := s.identifyOld()
	if err != nil {
		return err
	}
	// Written before the removal, because no record may call data complete while it is being removed.
	guarded := f.Data.Live == Guard || f.Data.Live == Blocker && s.isGuarded()
	err = s.write(Record{ID: s.ID, DataDir: s.DataDir, WALDir: s.WALDir, Plan: p, Old: old, Guarded: guarded})
	if err != nil {
		return err
	}
	for _, target := range s.places() {
		err := target.makeFolder()
		if err != nil {
			return err
		}
		err = os.RemoveAll(filepath.Join(target.folder, newName))
		if err != nil {
			return fmt.Errorf("remove the new data of an earlier restore: %w", err)
		}
		err = target.probe()
		if err != nil {
			return err
		}
	}
	if old != nil {
		return nil
	}
	return s.blockLive()
}

// isGuarded reports whether a guard was live when the new data was built.
func (s *Swap) isGuarded() bool {
	r, err := s.Record()
	return err == nil && r.Guarded
}

// unstageable returns the reason why no new data can be built in the state f, and what the operator can do.
func (s *Swap) unstageable(f Facts) error {
	switch f.State() {
	case Blocked, Unknown, Superseded, Undone, Bare, Emptied, Guarded:
		return s.refusal(Place, f.State(), fmt.Errorf("%w: cannot build new data: %w", fault.Refused, f.remedy()))
	}
	return fmt.Errorf("%w: restore %s of %s is %s: run %s first", fault.Refused, s.ID, s.DataDir, f.State(), s.undoText())
}

// identifyOld returns the identities of the live directories; nil if there is no old data.
func (s *Swap) identifyOld() ([]filesystem.Identity, error) {
	vacant, err := s.IsVacant()
	if err != nil || vacant {
		return nil, err
	}
	return identify(s.live())
}

// blockLive makes the blockers at the live paths. It begins with that of the data dir: etcd does not start from then on.
func (s *Swap) blockLive() error {
	for _, p := range s.places() {
		err := p.blockLive()
		if err != nil {
			return fmt.Errorf("keep etcd from starting on %s: %w", p.live, err)
		}
	}
	return nil
}

func (p place) makeFolder() error {
	err := os.MkdirAll(filepath.Dir(p.folder), 0o700) // on a new disk
	if err != nil {
		return err
	}
	err = os.Mkdir(p.folder, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make a folder for the new data: %w", err)
	}
	return nil
}

// lockFolder excludes another process that stages or cleans the same Swap.
func (s *Swap) lockFolder() (lock *fileutil.LockedFile, err error) {
	err = filesystem.TryLock(lockTime, child.ErrTaken, func() (err error) {
		lock, err = child.LockDir(s.data.folder)
		return err
	})
	if errors.Is(err, child.ErrTaken) {
		return nil, s.busy()
	}
	return lock, err
}
