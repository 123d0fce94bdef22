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
)

// Running says that a process holds the log or the database of a data dir, as etcd does while it runs. It looks at the
// locks and takes none: an etcd that started at that moment would fail. Of a disk that another machine has mounted nothing
// can be seen.
func Running(dir string) (bool, error) {
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil {
		return false, err
	}
	for _, file := range logs {
		if held, err := recordLocked(file); held || err != nil {
			return held, err
		}
	}
	return fileLocked(filepath.Join(dir, "member", "snap", "db"))
}

// recordLocked asks for a lock as etcd takes it on its log (client/pkg/fileutil/lock_linux.go).
func recordLocked(file string) (bool, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return false, nil // a file system without such locks
	}
	return lock.Type != unix.F_UNLCK, nil
}

// fileLocked looks for a lock as bbolt takes it on its file: of those the kernel only tells in a list.
func fileLocked(file string) (bool, error) {
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
		return false, nil // the log's locks were asked for already
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
