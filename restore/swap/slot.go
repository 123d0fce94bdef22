package swap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// place is where one slot is on its disk.
type place struct {
	live   string // the path that is exchanged
	folder string // of this restore, on the same file system
	sub    string // the name of the exchanged directory in new, old and failed; "": they are exchanged themselves
	text   string // of a blocker
}

// at returns the path of the directory that is aside under name.
func (p place) at(name string) string { return filepath.Join(p.folder, name, p.sub) }

// look returns the kinds of the slot's entries.
func (p place) look() (s Slot, err error) {
	for _, entry := range []struct {
		path string
		to   *Kind
	}{{p.live, &s.Live}, {p.at(newName), &s.New}, {p.at(oldName), &s.Old}, {p.at(failedName), &s.Failed}} {
		*entry.to, err = p.kind(entry.path)
		if err != nil {
			return Slot{}, fmt.Errorf("check %s: %w", entry.path, err)
		}
	}
	return s, nil
}

func (p place) kind(path string) (Kind, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Missing, nil
	case err != nil:
		return "", err
	case info.IsDir():
		return Dir, nil
	case !info.Mode().IsRegular():
		return Other, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	begin, err := io.ReadAll(io.LimitReader(f, int64(len(p.text))))
	switch {
	case err != nil:
		return "", err
	case bytes.Equal(begin, []byte(p.text)):
		return Blocker, nil
	case anyBlocker.Match(begin):
		return Foreign, nil
	}
	return Other, nil
}

// exchange exchanges the live path with the one that is aside under name, and makes that durable.
func (p place) exchange(name string) error {
	err := filesystem.Exchange(p.live, p.at(name))
	if err != nil {
		return err
	}
	return errors.Join(filesystem.Sync(filepath.Dir(p.live)), filesystem.Sync(filepath.Dir(p.at(name))))
}

// adopt gives the new data the owner and the mode of the old data.
func (p place) adopt() error {
	info, err := os.Stat(p.at(oldName))
	if err != nil {
		return err
	}
	err = filesystem.InheritOwner(p.at(oldName), p.at(newName))
	if err != nil {
		return err
	}
	return os.Chmod(p.at(newName), info.Mode().Perm())
}

// block makes a blocker at path, which must be missing. The file appears with all of its text, or not at all.
func (p place) block(path string) error {
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err != nil {
		return err
	}
	whole := filepath.Join(p.folder, "blocker")
	err = writeDurably(whole, []byte(p.text), 0o444)
	if err != nil {
		return err
	}
	err = os.Link(whole, path)
	if err != nil {
		return err
	}
	return errors.Join(os.Remove(whole), filesystem.Sync(filepath.Dir(path)), filesystem.Sync(p.folder))
}

// writeDurably replaces the file at path. After a kill it has either content.
func writeDurably(path string, content []byte, mode fs.FileMode) error {
	part := path + ".part"
	err := os.Remove(part)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = os.WriteFile(part, content, mode)
	if err != nil {
		return err
	}
	err = filesystem.Sync(part)
	if err != nil {
		return err
	}
	err = os.Rename(part, path)
	if err != nil {
		return err
	}
	return filesystem.Sync(filepath.Dir(path))
}

// probe refuses a file system that cannot exchange a directory with a file in one step.
func (p place) probe() error {
	dir, err := os.MkdirTemp(p.folder, "probe-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file, folder := filepath.Join(dir, "file"), filepath.Join(dir, "folder")
	err = errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(folder, 0o700))
	if err != nil {
		return err
	}
	err = filesystem.Exchange(file, folder)
	if errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("%w: the file system of %s cannot exchange two names in one step, so etcd could start on a missing data dir: "+
			"stop etcd, move %s aside and restore without --replace", fault.Refused, p.live, p.live)
	}
	return err
}
