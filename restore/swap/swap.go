// Package swap replaces the data dir of one member by a restored one, on the member's own disk, and can take that back.
//
//	            live path   new       old       failed
//	unstaged    old
//	   │ Stage: the restore engine builds new
//	staged      old         new       blocker   blocker
//	   │ CloseLive   ▲ Undo
//	closed      blocker     new       old       blocker
//	   │ Place
//	placed      new         blocker   old       blocker
//	   │ Undo
//	withdrawn   blocker     blocker   old       new
//	   │
//	undone      old         blocker   blocker   new
//
// The record has the identities of the old and of the new directory. So a directory that another restore or an operator put in the place
// of either is recognized: the state is then stale, superseded, vacated or unknown, and nothing is exchanged.
//
// Clean removes the directories that are aside.
//
// If old data was lost meanwhile, Block puts a guard at the live path: a file on which etcd exits, which belongs to no restore. A later
// restore treats such a disk as one without old data. If that one is taken back, the guard is there again.
//
// If the data dir is missing or contains nothing of etcd's, etcd with --initial-cluster-state=new starts on it as a new, empty cluster. So
// the live path is never missing. While old and new data change places, a blocker is there: a regular file, on which etcd exits. Each step
// exchanges two names in one operation of the file system (filesystem.Exchange), so a kill or a power failure leaves a state of the table
// in state.go. Stage makes all blockers, so a full disk stops neither Place nor Undo. Each method looks at the disk, then acts, and can be
// repeated after a kill.
//
// The directories that are aside are in .dr-swap-NAME-ID next to the data dir NAME. A data dir that is a mount point cannot be renamed, and
// one with content besides member must keep that content, unless it is only bitnami's about the old member. There, and in an empty data dir,
// only member is exchanged, and the directories are in .dr-swap-ID inside the data dir. A log in a directory of its own is a second slot.
package swap

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"al.essio.dev/pkg/shellescape"

	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Swap is one restore in place of a member's data dir.
type Swap struct {
	ID      string // names its folders
	DataDir string // absolute, without a symbolic link at its end
	WALDir  string // likewise; "": the log is in the data dir

	data place
	log  *place // nil: the log is in the data dir
}

// folderPrefix begins the names of the folders.
const folderPrefix = ".dr-swap-"

var validID = regexp.MustCompile(`^[0-9a-f]{8,32}$`)

// New returns the Swap with this id, 8 to 32 hex digits, of the member with its data in dataDir and its log in walDir. A walDir of "" means
// that the log is in the data dir. New changes nothing on the disk.
func New(id, dataDir, walDir string) (*Swap, error) {
	if !validID.MatchString(id) {
		return nil, fmt.Errorf("%w: %q is no id of a restore in place: use one that dr restore --replace printed", fault.Usage, id)
	}
	s := &Swap{ID: id}
	var err error
	s.DataDir, err = resolve(dataDir)
	if err != nil {
		return nil, err
	}
	inside, err := isInside(id, s.DataDir)
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", s.DataDir, err)
	}
	s.data = dataPlace(id, s.DataDir, inside)
	if walDir == "" {
		return s, nil
	}
	return s, s.addLog(walDir)
}

// dataPlace returns the place of the data dir dir: of member in it if inside is true, else of the whole data dir.
func dataPlace(id, dir string, inside bool) place {
	if inside {
		return place{id: id, live: filepath.Join(dir, member), folder: filepath.Join(dir, folderPrefix+id), sub: member, text: blockerText(id, dir)}
	}
	return place{id: id, live: dir, folder: filepath.Join(filepath.Dir(dir), prefixOf(dir)+id), text: blockerText(id, dir)}
}

// isInside reports whether only member in dir is exchanged. If the folder of id exists, its path shows that. For a new id only member is
// exchanged if dir is a mount point, contains anything to keep besides the directory member, such as certificates, or is empty.
func isInside(id, dir string) (bool, error) {
	for _, inside := range []bool{true, false} {
		p := dataPlace(id, dir, inside)
		if exists(p.folder) || exists(p.removed()) {
			return inside, nil
		}
	}
	mounted, err := filesystem.IsMountPoint(dir)
	if err != nil || mounted {
		return mounted, err
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return slices.Contains(aboutMember, e.Name()) })
	return err == nil && (len(entries) != 1 || entries[0].Name() != member || !entries[0].IsDir()), err
}

// aboutMember are files of bitnami's images with the id of the member, and the settings with which it joined its cluster. Next to another
// member, the scripts fail on the one, and obey the other (libetcd.sh of the images before 2023).
var aboutMember = []string{"member_id", "new_member_envs"}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// member is the directory in a data dir that contains everything that etcd must keep.
const member = "member"

// addLog adds the slot of a log in a directory of its own. It refuses a mount point, in which etcd cannot make its log either: etcd
// renames a directory to that path.
func (s *Swap) addLog(walDir string) error {
	var err error
	s.WALDir, err = resolve(walDir)
	if err != nil {
		return err
	}
	mounted, err := filesystem.IsMountPoint(s.WALDir)
	if err != nil {
		return fmt.Errorf("check %s: %w", s.WALDir, err)
	}
	if mounted {
		return fmt.Errorf("%w: --wal-dir %s is a mount point, which cannot be exchanged: stop etcd, move the content of %s and %s aside, "+
			"and restore without --replace", fault.Refused, s.WALDir, s.WALDir, s.DataDir)
	}
	folder := filepath.Join(filepath.Dir(s.WALDir), prefixOf(s.WALDir)+s.ID)
	s.log = &place{id: s.ID, live: s.WALDir, folder: folder, text: s.data.text}
	return nil
}

// addRecordedLog adds the slot of the log, if r has one in a directory of its own. The log is now in walDir; if walDir is "", it is still
// at the path in r.
func (s *Swap) addRecordedLog(r Record, walDir string) error {
	switch {
	case r.WALDir == "" && walDir != "":
		return fmt.Errorf("%w: restore %s of %s has its log in the data dir: omit --wal-dir", fault.Usage, s.ID, s.DataDir)
	case r.WALDir == "":
		return nil
	}
	return s.addLog(cmp.Or(walDir, r.WALDir))
}

// maxLinks is the largest number of symbolic links that resolve follows to something that is missing.
const maxLinks = 40

// resolve follows symbolic links, and returns the path at their end, even if nothing exists there: while old and new data change places, a
// data dir is missing for a moment. If the directory of a path is missing, resolve returns that path.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for range maxLinks {
		leads, err := filepath.EvalSymlinks(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return leads, err
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(path)) // before "..", which follows links
		if errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, filepath.Base(path))
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // it is missing itself
		}
		path = target
		if !filepath.IsAbs(target) {
			path = filepath.Join(dir, target)
		}
	}
	return "", fmt.Errorf("%w: %s leads through too many symbolic links: name the directory itself", fault.Usage, path)
}

// prefixOf returns the beginning of the names of folders next to dir; the id follows.
func prefixOf(dir string) string { return folderPrefix + filepath.Base(dir) + "-" }

// blockerText is the content of a blocker, for an operator who finds it.
func blockerText(id, dataDir string) string {
	return fmt.Sprintf("dr restore %s is replacing the data dir %s. This file keeps etcd from starting on a part of it.\n"+
		"To complete the restore, repeat the command that began it; an EtcdRestore continues by itself.\n"+
		"To take back what dr restore --replace began: %s\n", id, dataDir, shellescape.QuoteCommand(command("--undo", id, dataDir)))
}

// blockerBegin matches the beginning of every blocker.
var blockerBegin = regexp.MustCompile(`^dr restore ([0-9a-f]{8,32}) is replacing the data dir `)

// A guard has no id: each restore may replace it.
const (
	guardBegin = "dr restore has found no data here."
	guardText  = guardBegin + " This file keeps etcd from starting on an empty data dir, as a member that has lost its votes.\n" +
		"Restore the cluster again, which also rebuilds this member. Or move this file away, and add the member as a new one.\n"
)

// Find returns all Swaps of a data dir that are on its disk. A Swap whose blocker is live comes first: the others cannot see any live data
// until it is completed or undone. Find includes a Swap with a damaged record; its Record returns the error.
func Find(dataDir string) (found []*Swap, err error) {
	all, err := idsOf(dataDir, "")
	if err != nil {
		return nil, err
	}
	for _, id := range all {
		s, err := load(id, dataDir, "")
		if err != nil && !errors.Is(err, fault.Damaged) {
			return nil, err
		}
		found = append(found, s)
	}
	first := slices.IndexFunc(found, (*Swap).isBlocking)
	if first > 0 {
		found[0], found[first] = found[first], found[0]
	}
	return found, nil
}

// idsOf returns the ids of the folders of a data dir whose names end with suffix.
func idsOf(dataDir, suffix string) (all []string, err error) {
	dir, err := resolve(dataDir)
	if err != nil {
		return nil, err
	}
	for _, place := range []place{dataPlace("", dir, true), dataPlace("", dir, false)} {
		parent, prefix := filepath.Split(place.folder)
		entries, err := os.ReadDir(parent)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find restores of %s: %w", dataDir, err)
		}
		for _, e := range entries {
			id, ours := strings.CutPrefix(e.Name(), prefix)
			id, ends := strings.CutSuffix(id, suffix)
			if ours && ends && validID.MatchString(id) && e.IsDir() {
				all = append(all, id)
			}
		}
	}
	return all, nil
}

// Load returns the Swap with this id of a data dir. walDir is where its log is now, "" for the path in the record. The error matches
// fault.NotFound if its folder is missing.
func Load(id, dataDir, walDir string) (*Swap, error) {
	s, err := load(id, dataDir, walDir)
	if err != nil {
		return nil, err
	}
	_, err = s.Record()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// load is like Load, but a missing record is no error: the command may have been killed before it wrote one. With an error that matches
// fault.Damaged it also returns the Swap.
func load(id, dataDir, walDir string) (*Swap, error) {
	s, err := New(id, dataDir, "")
	if err != nil {
		return nil, err
	}
	r, err := s.Record()
	if errors.Is(err, fault.NotFound) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	return s, s.addRecordedLog(r, walDir)
}

// Into returns where the restore engine builds the new data.
func (s *Swap) Into(name string) plan.Into {
	into := plan.Into{Name: name, DataDir: filepath.Join(s.data.folder, newName)}
	if s.log != nil {
		into.WALDir = filepath.Join(s.log.folder, newName)
	}
	return into
}

// OldData returns the directories of the old data after CloseLive: of the data, and of the log if it has a directory of its own.
func (s *Swap) OldData() []string { return s.aside(oldName) }

// Aside returns the directories of the data that is not in use in state; nil unless state is Staged, Placed or Undone.
func (s *Swap) Aside(state State) []string {
	switch state {
	case Placed:
		return s.aside(oldName)
	case Staged:
		return s.aside(newName)
	case Undone:
		return s.aside(failedName)
	}
	return nil
}

func (s *Swap) aside(name string) []string {
	var all []string
	for _, p := range s.places() {
		all = append(all, p.at(name))
	}
	return all
}

// live returns the paths that etcd uses.
func (s *Swap) live() []string {
	var all []string
	for _, p := range s.places() {
		all = append(all, p.live)
	}
	return all
}

func (s *Swap) places() []place {
	if s.log == nil {
		return []place{s.data}
	}
	return []place{s.data, *s.log}
}
