package child

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Dir is a temporary directory with a lock that its owner holds while it runs. Children write whole unencrypted databases
// there. After parent and child are killed or the machine crashes, the next NewDir finds the directory unlocked and removes it.
type Dir struct {
	Path string
	lock *fileutil.LockedFile
}

// abandonable matches the names of scratch directories, which RemoveAbandoned may remove.
var abandonable = regexp.MustCompile(`^dr-scratch-[a-z]+-[0-9]+$`)

const lockName = "lock"

// NewDir creates a scratch directory for verb below parent, or in the system's temporary directory if parent is "". It first
// removes abandoned directories of any verb, as far as it can.
func NewDir(parent, verb string) (*Dir, error) {
	RemoveAbandoned(parent)
	for {
		d, err := newDir(cmp.Or(parent, os.TempDir()), verb)
		if errors.Is(err, ErrTaken) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("make a scratch directory: %w", err)
		}
		return d, nil
	}
}

// newDir creates and locks one directory. It returns ErrTaken if another process removed the directory before the lock.
func newDir(parent, verb string) (*Dir, error) {
	path, err := os.MkdirTemp(parent, "dr-scratch-"+verb+"-*")
	if err != nil {
		return nil, err
	}
	lock, err := LockDir(path)
	if errors.Is(err, ErrTaken) {
		return nil, err
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &Dir{path, lock}, nil
}

// ErrTaken reports that another process has locked the directory, or has removed it as abandoned.
var ErrTaken = fault.New(fault.Busy, "another has taken the directory")

// LockDir locks the directory at path by a file in it. If the directory does not exist, the error matches both ErrTaken and
// fs.ErrNotExist.
func LockDir(path string) (*fileutil.LockedFile, error) {
	file := filepath.Join(path, lockName)
	lock, err := fileutil.TryLockFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	switch {
	case errors.Is(err, fileutil.ErrLocked) || errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", ErrTaken, err)
	case err != nil:
		return nil, err
	}
	ours, err := lock.Stat()
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	current, err := os.Stat(file)
	if err != nil || !os.SameFile(ours, current) { // the file was removed or replaced
		return nil, errors.Join(ErrTaken, lock.Close())
	}
	return lock, nil
}

// Remove removes the directory and its content. The directory may already be missing.
func (d *Dir) Remove() error {
	return errors.Join(RemoveDir(d.Path), d.lock.Close())
}

// RemoveDir removes the scratch directory at path, for a child whose parent cannot. It removes the lock last, so that the rest
// is recognized as abandoned if the process is killed.
func RemoveDir(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Name() != lockName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(path, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(path)
}

// RemoveAbandoned removes the scratch directories below parent, or in the system's temporary directory if parent is "", whose
// owners no longer run. It skips directories that it cannot remove.
func RemoveAbandoned(parent string) {
	parent = cmp.Or(parent, os.TempDir())
	entries, err := os.ReadDir(parent)
	if err != nil {
		return // the creation of a directory there reports the error
	}
	for _, e := range entries {
		if e.IsDir() && abandonable.MatchString(e.Name()) {
			removeIfAbandoned(filepath.Join(parent, e.Name()))
		}
	}
}

// removeIfAbandoned removes the directory at path if it can take its lock, or if the directory is empty. The owner of an empty
// directory was killed before it created the lock, or is about to create it: that owner then creates another directory.
// removeIfAbandoned leaves any other directory without a lock alone.
func removeIfAbandoned(path string) {
	lock, err := fileutil.TryLockFile(filepath.Join(path, lockName), os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(path)
	}
	if err != nil {
		return
	}
	defer lock.Close()
	_ = RemoveDir(path)
}
