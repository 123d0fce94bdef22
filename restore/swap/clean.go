package swap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Clean removes the data that the restore with this id keeps aside: after Place the old data, after Undo the restored data. It refuses
// while the live path is blocked, unless there was no old data: then it also removes the blockers. walDir has the same meaning as in Load.
func Clean(id, dataDir, walDir string) error {
	s, err := Load(id, dataDir, walDir)
	if errors.Is(err, fault.NotFound) {
		return finishClean(id, dataDir, walDir, err)
	}
	if err != nil {
		return err
	}
	return s.clean()
}

// finishClean completes a Clean that was killed. It returns missing if there was none.
func finishClean(id, dataDir, walDir string, missing error) error {
	s, err := New(id, dataDir, "")
	if err != nil {
		return err
	}
	if !exists(s.data.removed()) {
		return missing
	}
	r, err := s.readRecord(s.data.removed())
	switch {
	case err == nil:
		err = s.addRecordedLog(r, walDir)
	case errors.Is(err, fault.NotFound): // the log's folder is removed before the record, so it is gone already
		err = nil
	}
	if err != nil {
		return err
	}
	return s.removeRenamed()
}

// finishCleans completes each Clean of a data dir that was killed. It skips one whose record is damaged.
func finishCleans(dataDir string, report storage.Report) error {
	all, err := idsOf(dataDir, removedSuffix)
	if err != nil {
		return err
	}
	for _, id := range all {
		err := finishClean(id, dataDir, "", nil)
		if errors.Is(err, fault.Damaged) {
			report.Say(storage.Event{Stage: "replace", Level: storage.Note, Object: dataDir, Message: fmt.Sprintf("skipped restore %s: %v", id, err)})
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Discard removes the new data with the folders if etcd cannot have started on it. If there was no old data, it removes the blockers, but no
// guard, and keeps new data in failed. In all other states, and without a folder, it does nothing.
func (s *Swap) Discard() error {
	if !exists(s.data.folder) {
		return finishClean(s.ID, s.DataDir, s.WALDir, nil)
	}
	return s.locked(func(f Facts) error {
		if !f.discardable() {
			return nil
		}
		err := s.unblock(f)
		if err != nil || f.Data.New == Blocker { // what was new is in failed
			return err
		}
		return s.remove()
	})
}

func (s *Swap) clean() error {
	return s.locked(func(f Facts) error {
		if !f.cleanable() {
			return fmt.Errorf("%w: restore %s of %s is %s: cannot remove its directories: %w", fault.Refused, s.ID, s.DataDir, f.State(), s.needed(f))
		}
		err := s.unblock(f)
		if err != nil {
			return err
		}
		return s.remove()
	})
}

// locked calls do with the facts, while no other process changes them.
func (s *Swap) locked(do func(Facts) error) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	folder, err := s.lockFolder()
	if err != nil {
		return err
	}
	defer folder.Close()
	f, err := s.facts()
	if err != nil {
		return err
	}
	return do(f)
}

// unblock removes the blockers at live paths that had no old data. It removes that of the data dir last: until then etcd does not start. If
// there was a guard, it puts one there instead.
func (s *Swap) unblock(f Facts) error {
	if f.Log != nil && f.Log.isVacant() && f.Log.Live == Blocker {
		err := s.log.unblock()
		if err != nil {
			return err
		}
	}
	switch {
	case !f.Data.isVacant() || f.Data.Live != Blocker:
		return nil
	case s.isGuarded():
		return s.data.guard()
	}
	return s.data.unblock()
}

// needed returns why the directories of s, in the state f, are still needed, and what the operator can do.
func (s *Swap) needed(f Facts) error {
	switch f.State() {
	case Closing, Closed, Placing, Exposed, Withdrawn, Undoing:
		return fmt.Errorf("they have the only copy of the old data: complete it with dr restore --replace, or take it back with %s",
			s.undoText())
	}
	return f.remedy()
}

// remove removes the folders. It first renames the data's folder, which has the record: after the rename neither folder counts as a
// restore, and after a kill the next Clean or Choose removes the rest.
func (s *Swap) remove() error {
	removed := s.data.removed()
	err := os.RemoveAll(removed)
	if err != nil {
		return err
	}
	err = os.Rename(s.data.folder, removed)
	if err != nil {
		return err
	}
	err = filesystem.Sync(filepath.Dir(removed))
	if err != nil {
		return err
	}
	return s.removeRenamed()
}

// removeRenamed removes the log's folder, then the data's renamed folder, which has the record of both.
func (s *Swap) removeRenamed() error {
	if s.log != nil {
		err := os.RemoveAll(s.log.folder)
		if err != nil {
			return err
		}
	}
	return os.RemoveAll(s.data.removed())
}

// removedSuffix ends the name of the data's folder while Clean removes it.
const removedSuffix = ".removed"

// removed returns the path that the folder has while Clean removes it.
func (p place) removed() string { return p.folder + removedSuffix }
