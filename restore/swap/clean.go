package swap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Clean removes everything that the restore id of a data dir has aside: after Place the old data, after Undo the restored data. It
// refuses while the live data is blocked.
func Clean(id, dataDir string) error {
	s, err := Load(id, dataDir)
	if errors.Is(err, fault.NotFound) {
		return finishClean(id, dataDir, err)
	}
	if err != nil {
		return err
	}
	return s.clean()
}

// finishClean completes a Clean that was killed; without one it returns missing.
func finishClean(id, dataDir string, missing error) error {
	s, err := New(id, dataDir, "")
	if err != nil {
		return err
	}
	if !exists(s.data.removed()) {
		return missing
	}
	return os.RemoveAll(s.data.removed())
}

func (s *Swap) clean() error {
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
	if !f.cleanable() {
		return fmt.Errorf("%w: restore %s of %s is %s, so its directories have the only copy: complete it with dr restore --replace, "+
			"or take it back with dr restore --undo %s", fault.Refused, s.ID, s.DataDir, f.State(), s.ID)
	}
	return s.remove()
}

// remove removes the folders, the log's first: the record is in the data's. Each is renamed first, so that half of it is never taken
// for a whole.
func (s *Swap) remove() error {
	all := s.places()
	for i := len(all) - 1; i >= 0; i-- {
		err := all[i].remove()
		if err != nil {
			return fmt.Errorf("remove %s: %w", all[i].folder, err)
		}
	}
	return nil
}

func (p place) remove() error {
	err := os.RemoveAll(p.removed())
	if err != nil {
		return err
	}
	err = os.Rename(p.folder, p.removed())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(filesystem.Sync(filepath.Dir(p.folder)), os.RemoveAll(p.removed()))
}

// removed returns the path of the folder while it is removed.
func (p place) removed() string { return p.folder + ".removed" }
