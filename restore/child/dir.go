package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// Dir is a scratch directory, to be thrown away. A lock says that whoever made it lives: what children write there is a whole
// database in plain, and must not stay when both were killed, or the machine went down.
type Dir struct {
	Path string
	lock *fileutil.LockedFile
}

var (
	abandonable = regexp.MustCompile(`^dr-[a-z]+-[0-9]+$`)
	errLostRace = errors.New("it was taken for an abandoned one")
)

const lockName = "lock"

// NewDir makes a scratch directory for verb below parent, where temporary files go if that is "". It removes those whose
// owners are gone first, of whatever verb; what cannot be removed stays.
func NewDir(parent, verb string) (*Dir, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	removeAbandoned(parent)
	for {
		d, err := newDir(parent, verb)
		if errors.Is(err, errLostRace) {
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
	path, err := os.MkdirTemp(parent, "dr-"+verb+"-*")
	if err != nil {
		return nil, err
	}
	lock, err := fileutil.TryLockFile(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fileutil.ErrLocked):
		return nil, errLostRace
	case err != nil:
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	if there, err := os.Stat(lock.Name()); err != nil || !same(lock, there) {
		return nil, errors.Join(errLostRace, lock.Close())
	}
	return &Dir{path, lock}, nil
}

func same(lock *fileutil.LockedFile, there fs.FileInfo) bool {
	ours, err := lock.Stat()
	return err == nil && os.SameFile(ours, there)
}

// Remove ends it, with all that is in it. It may be gone already.
func (d *Dir) Remove() error {
	return errors.Join(RemoveDir(d.Path), d.lock.Close())
}

// RemoveDir removes the scratch directory at path, for a child whose parent cannot. The lock goes last: what is killed on the
// way leaves an abandoned one, and no stranger's.
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

func removeAbandoned(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return // making one there says why
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
