//go:build unix

package restore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// freeSpace returns how many bytes an unprivileged user may still write below dir.
func freeSpace(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// isMountPoint reports whether another file system, or another part of the same one, is mounted at path. It is
// false for a missing path.
func isMountPoint(path string) (bool, error) {
	here, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	above, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return false, err
	}
	return here.Sys().(*syscall.Stat_t).Dev != above.Sys().(*syscall.Stat_t).Dev || isMountRoot(path), nil
}

// replaceDir renames a directory over an empty or missing one, in one step. os.Rename refuses to replace a directory.
func replaceDir(from, to string) error {
	if err := unix.Rename(from, to); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// inheritOwner gives tree to the owner of dir, if dir exists: an operator may have prepared dir for etcd's user.
func inheritOwner(dir, tree string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	if int(owner.Uid) == os.Geteuid() && int(owner.Gid) == os.Getegid() {
		return nil
	}
	return filepath.WalkDir(tree, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(path, int(owner.Uid), int(owner.Gid))
		}
		if err != nil {
			return fmt.Errorf("give the restore to the owner of %s: %w", dir, err)
		}
		return nil
	})
}
