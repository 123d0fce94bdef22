package salvage

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Running reports whether a process has locked the log or the database of a data dir, as etcd does while it runs. It queries the
// locks of the log and takes none, because an etcd that starts at that moment would fail. It cannot see the locks of another
// machine that has mounted the disk.
func Running(dir string) (bool, error) { return RunningWith(dir, "") }

// RunningWith is Running for a data dir with its log in walDir; "": in the data dir.
func RunningWith(dir, walDir string) (bool, error) {
	walDir = cmp.Or(walDir, filepath.Join(dir, "member", "wal"))
	logs, err := filepath.Glob(filepath.Join(walDir, "*.wal"))
	if err != nil {
		return false, err
	}
	for _, file := range logs {
		held, err := recordLocked(file)
		if held || err != nil {
			return held, err
		}
	}
	return Locked(filepath.Join(dir, "member", "snap", "db"))
}

// recordLocked reports whether a process has locked file as etcd locks its log (client/pkg/fileutil/lock_linux.go).
func recordLocked(file string) (bool, error) {
	return isHeld(file, func(f *os.File) bool {
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock)
		return err == nil && lock.Type != unix.F_UNLCK
	})
}

// Locked reports whether a process of any container has locked file as bbolt does to write. /proc/locks leaves out the locks of other
// PID namespaces, so Locked tries to share the lock, and releases it at once. An etcd that starts at that moment tries again 50 ms later.
func Locked(file string) (bool, error) {
	return isHeld(file, func(f *os.File) bool {
		return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == unix.EWOULDBLOCK
	})
}

// isHeld returns the result of query for file, which it opens and closes; false if it is missing or not a regular file, or if a directory
// in its path is a file. query returns false if the file system has no such locks.
func isHeld(file string, query func(*os.File) bool) (bool, error) {
	f, err := storage.OpenRegular(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, storage.ErrNotRegular) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	return query(f), nil
}
