package filesystem

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// IsOpen reports whether a process has the file at path open. It asks the kernel for a write lease, which the kernel grants only if no
// process of any container has the file open (fcntl(2), F_SETLEASE). Where leases are not permitted, IsOpen sees only the processes in
// /proc that it may inspect.
func IsOpen(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close() // which ends the lease
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	switch err {
	case nil:
		return false, nil
	case unix.EAGAIN:
		return true, nil
	}
	return inProc(f)
}

// inProc reports whether another process in /proc has f open.
func inProc(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	descriptors, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return false, err
	}
	self := filepath.Join("/proc", strconv.Itoa(os.Getpid()), "fd")
	for _, d := range descriptors {
		opened, err := os.Stat(d)
		if err == nil && os.SameFile(info, opened) && filepath.Dir(d) != self {
			return true, nil
		}
	}
	return false, nil
}
