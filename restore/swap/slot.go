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

// place holds the paths of one slot on its disk.
type place struct {
	live   string // the path that is exchanged
	folder string // of this restore, on the same file system
	sub    string // the directory in new, old and failed that is exchanged: member; "": these folders themselves
	id     string // of the restore
	text   string // content of the blocker's file
}

// at returns the path of the directory that is kept aside as name: newName, oldName or failedName.
func (p place) at(name string) string { return filepath.Join(p.folder, name, p.sub) }

// identities holds the identity of a slot's old and of its new directory.
type identities struct{ old, new filesystem.Identity }

// look returns the kinds of the slot's entries.
func (p place) look(ids identities) (s Slot, err error) {
	for _, entry := range []struct {
		path string
		to   *Kind
	}{{p.live, &s.Live}, {p.at(newName), &s.New}, {p.at(oldName), &s.Old}, {p.at(failedName), &s.Failed}} {
		*entry.to, err = p.kind(entry.path, ids)
		if err != nil {
			return Slot{}, fmt.Errorf("check %s: %w", entry.path, err)
		}
	}
	if s.New == OtherDir && ids.new == (filesystem.Identity{}) {
		s.New = PartDir
	}
	if ids.old == (filesystem.Identity{}) && unused.has(s.Old) {
		s.Old = NoOld
	}
	return s, nil
}

// lookLive returns the slot of a restore that has not begun.
func (p place) lookLive() (Slot, error) {
	live, err := p.kind(p.live, identities{})
	if err != nil {
		return Slot{}, fmt.Errorf("check %s: %w", p.live, err)
	}
	return Slot{Live: live, New: Missing, Old: NoOld, Failed: Missing}, nil
}

// kind returns the kind of the entry at path.
func (p place) kind(path string, ids identities) (Kind, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Missing, nil
	case err != nil:
		return "", err
	case info.IsDir():
		return ids.kind(path)
	case !info.Mode().IsRegular():
		return Other, nil
	}
	id, guard, err := blockerID(path)
	switch {
	case err != nil:
		return "", err
	case guard:
		return Guard, nil
	case id == p.id:
		return Blocker, nil
	case id != "":
		return Foreign, nil
	}
	return Other, nil
}

// kind returns the kind of the directory at path.
func (ids identities) kind(path string) (Kind, error) {
	found, err := filesystem.IdentityOf(path)
	switch {
	case err != nil:
		return "", err
	case found.Is(ids.old):
		return OldDir, nil
	case found.Is(ids.new):
		return NewDir, nil
	}
	return OtherDir, nil
}

// blockerID returns the id of the restore to which the blocker at path belongs; "" if the file is no blocker. guard means that it is a guard
// instead. The rest of the text is not compared: the data dir may have another path in a container or on a rescue system.
func blockerID(path string) (id string, guard bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	begin, err := io.ReadAll(io.LimitReader(f, 128))
	if err != nil {
		return "", false, err
	}
	match := blockerBegin.FindSubmatch(begin)
	if match == nil {
		return "", bytes.HasPrefix(begin, []byte(guardBegin)), nil
	}
	return string(match[1]), false, nil
}

// exchange exchanges the live path with the one that is kept aside as name, and makes the exchange durable.
func (p place) exchange(name string) error {
	err := filesystem.Exchange(p.live, p.at(name))
	if err != nil {
		return err
	}
	return errors.Join(filesystem.Sync(filepath.Dir(p.live)), filesystem.Sync(filepath.Dir(p.at(name))))
}

// adopt gives the new data the owner, the mode and the SELinux label of the live data. The top directory is treated apart from its content:
// etcd made the content, but an operator may have made the top, with another owner. A process that runs as the member's user may not be
// permitted to set that other owner, or the group: the member can use the data of that process.
func (p place) adopt() error {
	top, made := p.live, byEtcd(p.live)
	uid, gid, err := filesystem.OwnerOf(made)
	if err != nil {
		return err
	}
	permitted := func(err error) error {
		if uid == os.Geteuid() && errors.Is(err, fs.ErrPermission) {
			return nil
		}
		return err
	}
	err = permitted(filesystem.ChangeOwner(p.at(newName), uid, gid))
	if err != nil {
		return err
	}
	if made == filepath.Join(top, member) {
		err = copyMode(made, filepath.Join(p.at(newName), member))
		if err != nil {
			return err
		}
	}
	topUID, topGID, err := filesystem.OwnerOf(top)
	if err != nil {
		return err
	}
	err = permitted(os.Lchown(p.at(newName), topUID, topGID))
	if err != nil {
		return err
	}
	err = copyMode(top, p.at(newName))
	if err != nil {
		return err
	}
	return p.copyLabels(made)
}

// copyLabels gives the new data the SELinux label of the live data, and its content that of made. The new data was built in another
// directory and is renamed, so it has the label of that directory, and an etcd that is confined may not read it.
func (p place) copyLabels(made string) error {
	return filepath.WalkDir(p.at(newName), func(path string, _ fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == p.at(newName):
			return filesystem.CopyLabel(p.live, path)
		}
		return filesystem.CopyLabel(made, path)
	})
}

// byEtcd returns an entry of dir that etcd has made: member in a data dir, a WAL file in a log. Without one, as in member, it returns
// dir.
func byEtcd(dir string) string {
	for _, pattern := range []string{member, "*.wal"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err == nil && len(found) > 0 {
			return found[0]
		}
	}
	return dir
}

// copyMode copies all mode bits of one path to another. Callers change the owner first: a change of the owner may clear mode bits.
func copyMode(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	return os.Chmod(to, info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky))
}

// block makes a blocker at path, which must be missing. The file appears with all of its text, or not at all. All blockers of a slot are
// links to one file, so only the first needs space on the disk.
func (p place) block(path string) error {
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err != nil {
		return err
	}
	whole := filepath.Join(p.folder, "blocker")
	if !exists(whole) {
		err = os.MkdirAll(p.folder, 0o700) // of the log: a kill came before it was made
		if err != nil {
			return err
		}
		err = filesystem.WriteFile(whole, []byte(p.text), 0o444)
		if err != nil {
			return err
		}
	}
	err = os.Link(whole, path)
	if err != nil {
		return err
	}
	return filesystem.Sync(filepath.Dir(path))
}

// blockLive makes a blocker at the live path of a slot without old data, in the place of a guard. It removes an empty directory there, in
// which etcd would begin a new log.
func (p place) blockLive() error {
	kind, err := p.kind(p.live, identities{})
	if err != nil || kind == Blocker {
		return err
	}
	if kind == Guard {
		return filesystem.WriteFile(p.live, []byte(p.text), 0o444)
	}
	if kind == OtherDir {
		err := os.Remove(p.live)
		if err != nil {
			return err
		}
	}
	return p.block(p.live)
}

// guard puts a guard at the live path, which is missing or has a file.
func (p place) guard() error { return filesystem.WriteFile(p.live, []byte(guardText), 0o444) }

// IsGuard reports whether a guard is at path.
func IsGuard(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	_, guard, err := blockerID(path)
	return err == nil && guard
}

// MoveGuard puts the empty directory empty in the place of the data dir dir, which is a guard. The guard is then in it, where etcd exits too.
func MoveGuard(dir, empty string) error {
	err := os.Link(dir, filepath.Join(empty, member))
	if err != nil {
		return err
	}
	err = filesystem.Exchange(dir, empty)
	if err != nil {
		return err
	}
	return os.Remove(empty)
}

// unblock removes the blocker at the live path.
func (p place) unblock() error {
	err := os.Remove(p.live)
	if err != nil {
		return err
	}
	return filesystem.Sync(filepath.Dir(p.live))
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
