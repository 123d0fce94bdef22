package filesystem

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// label is the extended attribute with the SELinux label of an entry.
const label = "security.selinux"

// CopyLabel gives the entry to the SELinux label of the entry from. It leaves the label if from has none, if the file system stores none, or
// if the process is not permitted to change it.
func CopyLabel(from, to string) error {
	found := make([]byte, 4096) // SELinux accepts no more
	n, err := unix.Lgetxattr(from, label, found)
	if err == nil {
		err = unix.Lsetxattr(to, label, found[:n], 0)
	}
	if err == nil || err == unix.ENODATA || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return &os.LinkError{Op: "copy the SELinux label of", Old: from, New: to, Err: err}
}
