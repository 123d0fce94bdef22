package restore

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriteback has the kernel begin to write [offset, offset+n) of f to the disk and does not wait. Without it nothing
// is written before the sync at the end, and the disk idles meanwhile. Best effort: the sync is what counts.
func startWriteback(f *os.File, offset, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), offset, n, unix.SYNC_FILE_RANGE_WRITE)
}

// finishWriteback waits until [offset, offset+n) of f is written, and takes it out of the page cache: nobody reads it
// soon, and a copy for each member would push out what the rest of the machine needs.
func finishWriteback(f *os.File, offset, n int64) {
	const wait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	_ = unix.SyncFileRange(int(f.Fd()), offset, n, wait)
	_ = unix.Fadvise(int(f.Fd()), offset, n, unix.FADV_DONTNEED)
}
