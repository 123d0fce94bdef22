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

// Dir is a temporary directory. A lock in it shows that its owner runs. Children write a whole unencrypted database there, which
// must not stay after parent and child were killed or the machine went down.
type Dir struct {
	Path string
	lock *fileutil.LockedFile
}

var abandonable = regexp.MustCompile(`^dr-scratch-[a-z]+-[0-9]+$`)

const lockName = "lock"

// NewDir creates a scratch directory for verb below parent, or in the system's temporary directory if that is "". It first removes
// abandoned ones of any verb, as far as it can.
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

// newDir may lose its directory to another process before it is locked.
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

// LockDir locks the directory at path by a file in it. It returns ErrTaken also for a directory that does not exist; then the
// error matches fs.ErrNotExist too.
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
	if there, err := os.Stat(file); err != nil || !os.SameFile(ours, there) { // of another directory by that name, or of none
		return nil, errors.Join(ErrTaken, lock.Close())
	}
	return lock, nil
}

// Remove removes the directory and its content. It may be missing already.
func (d *Dir) Remove() error {
	return errors.Join(RemoveDir(d.Path), d.lock.Close())
}

// RemoveDir removes the scratch directory at path, for a child whose parent cannot. It removes the lock last, so that after a kill
// the rest is recognized as abandoned.
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

// RemoveAbandoned removes the scratch directories below parent, or in the system's temporary directory if that is "", whose owners
// no longer run. It leaves directories that it cannot remove.
func RemoveAbandoned(parent string) {
	parent = cmp.Or(parent, os.TempDir())
	entries, err := os.ReadDir(parent)
	if err != nil {
		return // creating one there reports the error
	}
	for _, e := range entries {
		if e.IsDir() && abandonable.MatchString(e.Name()) {
			removeIfAbandoned(filepath.Join(parent, e.Name()))
		}
	}
}

// removeIfAbandoned takes the lock of one first. Without a lock it is a stranger's, unless it is empty: then its owner was
// killed before it had one, or is about to make one, and then makes another directory.
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
