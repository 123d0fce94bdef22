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
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Stage builds the new data of p next to the live data, which etcd may still be using. run is restore.Spawn, or another way to
// carry out a plan. The plan places one member in the data dir of s. New data of an earlier plan is removed.
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
		return restore.Result{}, errors.Join(err, s.remove())
	}
	for i, m := range p.DataDirs() {
		result.Members[i].DataDir = p.Into.DataDir
		result.Members[i].Command = p.Command(m.Member, p.Into.DataDir)
	}
	return result, s.complete(Record{ID: s.ID, DataDir: s.DataDir, WALDir: s.WALDir, Plan: p, Result: &result})
}

// complete makes the blockers, and records that the new data is complete.
func (s *Swap) complete(r Record) error {
	before, err := s.Record()
	if err != nil {
		return err
	}
	r.Old = before.Old
	r.New, err = identify(s.aside(newName))
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
// finds that folder after a kill. On error it removes every folder that has no complete data.
func (s *Swap) begin(p plan.Plan) (*fileutil.LockedFile, error) {
	err := s.data.makeFolder()
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

// removeUnstaged removes the folders if they have no complete data. A folder left in a mount point would make a later restore without
// --replace refuse that target.
func (s *Swap) removeUnstaged() error {
	f, err := s.facts()
	if err != nil || f.State() != Unstaged {
		return nil // the folders may have data, or err is already the caller's error
	}
	return s.remove()
}

// startOver records p, makes the folders, and removes the new data of an earlier plan. It refuses a file system that cannot exchange
// two names.
func (s *Swap) startOver(p plan.Plan) error {
	f, err := s.facts()
	if err != nil {
		return err
	}
	state := f.State()
	if state != Unstaged && state != Staged && state != Stale {
		return fmt.Errorf("%w: restore %s of %s is %s: run %s first",
			fault.Refused, s.ID, s.DataDir, state, s.undoText())
	}
	old, err := identify(s.live())
	if err != nil {
		return err
	}
	// Written before the removal, because no record may call data complete while it is being removed.
	err = s.write(Record{ID: s.ID, DataDir: s.DataDir, WALDir: s.WALDir, Plan: p, Old: old})
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
	return nil
}

func (p place) makeFolder() error {
	err := os.Mkdir(p.folder, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make a folder for the new data: %w", err)
	}
	return nil
}

// lockFolder excludes another process that stages or cleans the same Swap.
func (s *Swap) lockFolder() (*fileutil.LockedFile, error) {
	lock, err := child.LockDir(s.data.folder)
	if errors.Is(err, child.ErrTaken) {
		return nil, s.busy()
	}
	return lock, err
}
