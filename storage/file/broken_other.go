//go:build !linux

package file

import "syscall"

// brokenDisk are the errors of a disk, or of a file system, that returns them in every try.
var brokenDisk = []error{syscall.EIO, syscall.EBADMSG}
