//go:build unix

package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// SpaceOf returns the space of the file system that contains dir, or would contain it if dir is missing.
func SpaceOf(dir string) (Space, error) {
	var s unix.Statfs_t
	err := unix.Statfs(dir, &s)
	if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		return SpaceOf(filepath.Dir(dir))
	}
	if err != nil {
		return Space{}, fmt.Errorf("determine the free space of %s: %w", dir, err)
	}
	return Space{Free: int64(s.Bavail) * int64(s.Bsize), Total: int64(s.Blocks) * int64(s.Bsize)}, nil
}

// IsMountPoint reports whether another file system, or another part of the same one, is mounted at path. It is
// false for a missing path.
func IsMountPoint(path string) (bool, error) {
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

// ReplaceDir renames a directory over an empty or missing one, in one step. os.Rename refuses to replace a directory.
func ReplaceDir(from, to string) error {
	err := unix.Rename(from, to)
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// OwnerOf returns the user and the group of path.
func OwnerOf(path string) (uid, gid int, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, err
	}
	owner := info.Sys().(*syscall.Stat_t)
	return int(owner.Uid), int(owner.Gid), nil
}

// InheritOwner gives tree to the owner of dir, if dir exists: an operator may have prepared dir for etcd's user.
func InheritOwner(dir, tree string) error {
	uid, gid, err := OwnerOf(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if uid == os.Geteuid() && gid == os.Getegid() {
		return nil
	}
	err = ChangeOwner(tree, uid, gid)
	if err != nil {
		return fmt.Errorf("give the restore to the owner of %s: %w", dir, err)
	}
	return nil
}

// ChangeOwner gives tree, with everything in it, to a user and a group.
func ChangeOwner(tree string, uid, gid int) error {
	return filepath.WalkDir(tree, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
}
