package swap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Record is stored with the new data, as state.json. It does not contain which steps are done: the directories show that.
type Record struct {
	ID      string          `json:"id"`
	DataDir string          `json:"dataDir"`
	WALDir  string          `json:"walDir,omitempty"`
	Plan    plan.Plan       `json:"plan"`             // of the new data; Into is the member's own place
	Result  *restore.Result `json:"result,omitempty"` // nil: the new data is not complete
	Files   []string        `json:"files,omitempty"`  // the states of the new data's files: they show whether etcd has started on it

	// The directories that are exchanged: of the data, and of the log if it has a directory of its own.
	Old []filesystem.Identity `json:"old,omitempty"` // nil: there was no old data
	New []filesystem.Identity `json:"new,omitempty"` // nil: the new data is not complete

	Guarded bool `json:"guarded,omitempty"` // there was a guard in place of old data
}

// identities returns the identities for both slots: of the data, then of the log. Those that are not recorded are zero.
func (r Record) identities() (ids [2]identities) {
	for i := range ids {
		if i < len(r.Old) {
			ids[i].old = r.Old[i]
		}
		if i < len(r.New) {
			ids[i].new = r.New[i]
		}
	}
	return ids
}

// identify returns the identities of the directories at paths.
func identify(paths []string) (all []filesystem.Identity, err error) {
	for _, path := range paths {
		i, err := filesystem.IdentityOf(path)
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

const recordName = "state.json"

// Record returns the record. The error matches fault.NotFound if there is none.
func (s *Swap) Record() (Record, error) {
	return s.readRecord(s.data.folder)
}

// readRecord returns the record in a folder.
func (s *Swap) readRecord(folder string) (Record, error) {
	content, err := os.ReadFile(filepath.Join(folder, recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, fmt.Errorf("%w: no restore %s of %s is in %s: check the id and the data dir",
			fault.NotFound, s.ID, s.DataDir, filepath.Dir(s.data.folder))
	}
	if err != nil {
		return Record{}, err
	}
	var r Record
	err = json.Unmarshal(content, &r)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %s: cannot read the record of restore %s: %w: %s",
			fault.Damaged, filepath.Join(folder, recordName), s.ID, err, s.unreadable(folder))
	}
	return r, nil
}

// unreadable returns what the operator can do about a damaged record in a folder.
func (s *Swap) unreadable(folder string) string {
	if folder == s.data.removed() { // a Clean has checked that the data is not needed
		return fmt.Sprintf("remove %s and, if etcd has a --wal-dir, %s*-%s next to that directory", folder, folderPrefix, s.ID)
	}
	return fmt.Sprintf("if old data is in %s, stop etcd and move it to %s by hand; then move %s away", s.data.at(oldName), s.data.live, s.data.folder)
}

// write replaces the record.
func (s *Swap) write(r Record) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	err = filesystem.WriteFile(filepath.Join(s.data.folder, recordName), append(content, '\n'), 0o600)
	if err != nil {
		return fmt.Errorf("record the restore: %w", err)
	}
	return nil
}

// newDirs returns the directories of the new data, while it is aside.
func (s *Swap) newDirs() []string {
	into := s.Into("")
	dirs := []string{filepath.Join(into.DataDir, member)}
	if into.WALDir != "" {
		dirs = append(dirs, into.WALDir)
	}
	return dirs
}

// isUnused reports whether the live data is the new data of r, and etcd has not changed a file of it.
func (s *Swap) isUnused(r Record) (bool, error) {
	dirs := []string{filepath.Join(s.DataDir, member)}
	if s.log != nil {
		dirs = append(dirs, s.WALDir)
	}
	files, err := fileStates(dirs)
	return err == nil && slices.Equal(files, r.Files), err
}

// fileStates returns the name, the size and the time of the last change of each file in dirs. A rename keeps them.
func fileStates(dirs []string) (states []string, err error) {
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			states = append(states, fmt.Sprintf("%s %d %s", strings.TrimPrefix(path, dir), info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano)))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}
