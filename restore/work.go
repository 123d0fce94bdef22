package restore

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// work is the directory in which a restore is built, on the file system of its target: next to the target, or inside it if the target is
// a mount point, which cannot be replaced. The running restore holds a lock on it. A work dir without a lock was left by a killed restore.
type work struct {
	target string
	dir    string
	tree   string // in dir; becomes the target
	inside bool   // dir is in target
	lock   *fileutil.LockedFile
}

// openWork makes and locks a work dir. It refuses a target that is not empty, and removes work dirs that killed runs left.
func openWork(target, planID string, report storage.Report) (*work, error) {
	w, err := newWork(target, planID)
	if err != nil {
		return nil, err
	}
	err = os.MkdirAll(filepath.Dir(w.target), 0o755)
	if err != nil {
		return nil, fmt.Errorf("make the folder of %s: %w", w.target, err)
	}
	for {
		err := w.clearStale(stalePatience, report)
		if err != nil {
			return nil, err
		}
		err = w.refuseOccupied()
		if err != nil {
			return nil, err
		}
		err = w.create()
		if !errors.Is(err, child.ErrTaken) {
			return w, err
		}
	}
}

// newWork returns the work dir for target without making it.
func newWork(target, planID string) (*work, error) {
	target, err := followLink(target)
	if err != nil {
		return nil, err
	}
	inside, err := filesystem.IsMountPoint(target)
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", target, err)
	}
	w := &work{target: target, inside: inside || hasOnlyLostAndFound(target)}
	w.dir = filepath.Join(w.folder(), w.prefix()+planID)
	w.tree = filepath.Join(w.dir, "tree")
	return w, nil
}

// lostAndFound is the folder at the root of a new file system.
const lostAndFound = "lost+found"

// hasOnlyLostAndFound reports whether dir contains nothing but an empty lost+found, as the root of a new file system does.
func hasOnlyLostAndFound(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 1 && isLostAndFound(dir, entries[0])
}

// isLostAndFound reports whether e in dir is an empty lost+found, or one that this user may not read.
func isLostAndFound(dir string, e fs.DirEntry) bool {
	if e.Name() != lostAndFound || !e.IsDir() {
		return false
	}
	found, err := os.ReadDir(filepath.Join(dir, lostAndFound))
	return len(found) == 0 && (err == nil || errors.Is(err, fs.ErrPermission))
}

// followLink resolves target if it is a symbolic link: a directory cannot be renamed over a link, and without followLink the run would
// fail only at its end.
func followLink(target string) (string, error) {
	info, err := os.Lstat(target)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return target, nil
	}
	leads, err := filepath.EvalSymlinks(target)
	if err != nil {
		return "", fmt.Errorf("%w: %s is a dangling symbolic link: make its directory, or remove it: %w",
			fault.Refused, target, err)
	}
	return leads, nil
}

// folder returns the parent of the target's work dirs.
func (w *work) folder() string {
	if w.inside {
		return w.target
	}
	return filepath.Dir(w.target)
}

// prefix returns the beginning of the names of the target's work dirs; a plan's id follows.
func (w *work) prefix() string {
	if w.inside {
		return plan.WorkPrefix
	}
	return plan.WorkPrefix + filepath.Base(w.target) + "-"
}

// create makes and locks the work dir. The error matches child.ErrTaken if another run for the same target removed it before it was
// locked.
func (w *work) create() error {
	err := os.MkdirAll(w.dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) { // another run removed a part of the path meanwhile
		return child.ErrTaken
	}
	if err != nil {
		return fmt.Errorf("make a work dir for %s: %w", w.target, err)
	}
	lock, err := child.LockDir(w.dir)
	if errors.Is(err, child.ErrTaken) {
		return err
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", w.dir, err)
	}
	err = os.MkdirAll(w.tree, 0o700) // only after the lock: before it another run may remove the dir
	if err != nil {
		return errors.Join(fmt.Errorf("make a work dir for %s: %w", w.target, err), lock.Close())
	}
	w.lock = lock
	return nil
}

// refuseOccupied refuses a target that is not empty: it may be the last copy of its data.
func (w *work) refuseOccupied() error {
	entries, err := os.ReadDir(w.target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %s is not a directory: move it aside", fault.Refused, w.target)
	}
	if err != nil {
		return fmt.Errorf("check %s: %w", w.target, err)
	}
	for _, e := range entries {
		if w.inside && w.tolerates(e) {
			continue
		}
		remedy := "move it aside"
		if w.inside {
			remedy = "a mount point cannot be moved, so rename its content to " + asideMark + "old"
		}
		return fmt.Errorf("%w: %s is not empty (%s is in it): %s, do not delete it before the restore is proven",
			fault.Refused, w.target, e.Name(), remedy)
	}
	return nil
}

// asideMark begins the names of old data in a mount point, which cannot be moved aside itself.
const asideMark = "member."

// tolerates reports whether e may stay in a mount point that is a target.
func (w *work) tolerates(e fs.DirEntry) bool {
	return isLostAndFound(w.target, e) || strings.HasPrefix(e.Name(), plan.WorkPrefix) || strings.HasPrefix(e.Name(), asideMark)
}

// stalePatience is the longest time for which a lock may last after its owner was killed.
const stalePatience = 10 * time.Second

// clearStale removes the work dirs that killed runs left for this target. It refuses if one of them is locked.
func (w *work) clearStale(patience time.Duration, report storage.Report) error {
	stale, err := w.others()
	if err != nil {
		return err
	}
	for _, dir := range stale {
		lock, err := takeStale(dir, patience)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its owner has removed it
		}
		if errors.Is(err, child.ErrTaken) {
			return fmt.Errorf("%w: another restore into %s is running: wait for it, or stop it", fault.Refused, w.target)
		}
		if err == nil {
			err = errors.Join(w.renameAndRemove(dir), lock.Close())
		}
		if err != nil {
			return fmt.Errorf("remove the work dir of a killed restore: %w", err)
		}
		report.Say(storage.Event{Stage: "ask", Level: storage.Note, Object: dir,
			Message: "removed the work dir of a killed restore"})
	}
	return nil
}

// planID matches Plan.ID. Without this check the work dirs of /data/etcd-events would count as those of /data/etcd.
var planID = regexp.MustCompile(`^[0-9a-f]{16}$`)

// others returns the existing work dirs of the target.
func (w *work) others() (dirs []string, err error) {
	entries, err := os.ReadDir(w.folder())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find work dirs of killed restores: %w", err)
	}
	for _, e := range entries {
		id, ok := strings.CutPrefix(e.Name(), w.prefix())
		if ok && planID.MatchString(id) {
			dirs = append(dirs, filepath.Join(w.folder(), e.Name()))
		}
	}
	return dirs, nil
}

// takeStale locks a work dir, even one without a lock file: a run that has just made that dir finds it taken.
func takeStale(dir string, patience time.Duration) (lock *fileutil.LockedFile, err error) {
	err = filesystem.TryLock(patience, child.ErrTaken, func() (err error) {
		lock, err = child.LockDir(dir)
		if errors.Is(err, fs.ErrNotExist) { // also if it was taken before
			return fs.ErrNotExist
		}
		return err
	})
	return lock, err
}

// renameAndRemove renames dir, then removes it. Without the rename it could remove the new dir of another run of the same plan, which makes
// and locks a dir of the same name as soon as the lock is gone.
func (w *work) renameAndRemove(dir string) error {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	away := filepath.Join(w.folder(), w.prefix()+hex.EncodeToString(random[:]))
	err := os.Rename(dir, away)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	err = os.RemoveAll(away)
	for tries := 1; errors.Is(err, syscall.ENOTEMPTY) && tries < 100; tries++ { // another run has locked it, to remove it too
		err = os.RemoveAll(away)
	}
	return err
}

// enough returns an error if the disk has less than need bytes free.
func (w *work) enough(need int64) error {
	space, err := filesystem.SpaceOf(w.dir)
	if err != nil {
		return err
	}
	if space.Free < need {
		return fmt.Errorf("%w: %s has %d MiB free, the restore needs up to %d MiB there: make room, or choose another disk",
			fault.Refused, filepath.Dir(w.dir), space.Free>>20, need>>20+1)
	}
	return nil
}

// sync makes everything in the tree durable: files, then the directories that name them.
func (w *work) sync() error {
	return filepath.WalkDir(w.tree, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return filesystem.Sync(path)
	})
}

// publish renames the tree to the target in one step. In a mount point it renames each folder of the tree in a step of its own. An empty
// target keeps its owner.
func (w *work) publish() error {
	err := w.refuseOccupied()
	if err != nil {
		return err
	}
	err = filesystem.InheritOwner(w.target, w.tree)
	if err != nil {
		return err
	}
	if !w.inside {
		err := filesystem.ReplaceDir(w.tree, w.target)
		if err != nil {
			return fmt.Errorf("put the restore into place: %w", err)
		}
		return filesystem.Sync(filepath.Dir(w.target))
	}
	entries, err := os.ReadDir(w.tree)
	if err != nil {
		return err
	}
	for _, e := range entries {
		to := filepath.Join(w.target, e.Name())
		_, err := os.Lstat(to)
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s exists: move it aside", fault.Refused, to)
		}
		err = os.Rename(filepath.Join(w.tree, e.Name()), to)
		if err != nil {
			return fmt.Errorf("put the restore into place: %w", err)
		}
	}
	return filesystem.Sync(w.target)
}

// remove removes and unlocks the work dir, which may be missing already.
func (w *work) remove() {
	_ = w.renameAndRemove(w.dir)
	w.lock.Close()
}
