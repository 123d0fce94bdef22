package filesystem

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// IdentityOf returns the identity of the directory at path.
func IdentityOf(path string) (Identity, error) {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME, &s)
	if err == unix.ENOSYS || err == unix.EPERM { // an old kernel, or an old filter of system calls
		return inodeOf(path)
	}
	if err != nil {
		return Identity{}, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	i := Identity{Inode: s.Ino}
	if s.Mask&unix.STATX_BTIME != 0 {
		i.Born = s.Btime.Sec*1e9 + int64(s.Btime.Nsec)
	}
	return i, nil
}

// inodeOf returns the identity of the directory at path without its time of creation.
func inodeOf(path string) (Identity, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Identity{}, err
	}
	return Identity{Inode: info.Sys().(*syscall.Stat_t).Ino}, nil
}
