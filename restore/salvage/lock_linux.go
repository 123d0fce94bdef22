package salvage

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Running reports whether a process has locked the log or the database of a data dir, as etcd does while it runs. It queries the
// locks and takes none, because an etcd that starts at that moment would fail. It cannot see the locks of another machine that
// has mounted the disk.
func Running(dir string) (bool, error) { return RunningWith(dir, filepath.Join(dir, "member", "wal")) }

// RunningWith is Running for a data dir with its log in walDir.
func RunningWith(dir, walDir string) (bool, error) {
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
	f, err := storage.OpenRegular(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, storage.ErrNotRegular) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock)
	if err != nil {
		return false, nil // the file system has no such locks
	}
	return lock.Type != unix.F_UNLCK, nil
}

// Locked reports whether a process has locked file as bbolt does. The kernel lists such locks only in /proc/locks, and leaves out those
// of processes in other PID namespaces, such as another container. Locked does not find these.
func Locked(file string) (bool, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	list, err := os.Open("/proc/locks")
	if err != nil || !ok {
		return false, nil // without the list of locks, or the file's inode number, no lock can be found
	}
	defer list.Close()
	id := fmt.Sprintf("%02x:%02x:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)
	for lines := bufio.NewScanner(list); lines.Scan(); {
		for _, field := range strings.Fields(lines.Text()) {
			if field == id {
				return true, nil
			}
		}
	}
	return false, nil
}
