package filesystem

import (
	"os"

	"golang.org/x/sys/unix"
)

// Exchange exchanges the entries a and b of one file system in one step: at no time is either missing. One may be a file and the
// other a directory. The error matches errors.ErrUnsupported if the file system cannot do that. (renameat2(2), RENAME_EXCHANGE)
func Exchange(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	if err == nil {
		return nil
	}
	if err == unix.EINVAL { // the answer of a file system without it
		err = unix.ENOTSUP
	}
	return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
}
