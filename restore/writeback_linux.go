package restore

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriteback makes the kernel begin to write [offset, offset+n) of f to the disk, and does not wait: the disk need not idle until the
// final sync. It ignores errors, because the sync reports them.
func startWriteback(f *os.File, offset, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), offset, n, unix.SYNC_FILE_RANGE_WRITE)
}

// finishWriteback waits until [offset, offset+n) of f is written, and drops it from the page cache. Without that, a copy for each member
// would evict the pages of other processes.
func finishWriteback(f *os.File, offset, n int64) {
	const wait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	_ = unix.SyncFileRange(int(f.Fd()), offset, n, wait)
	_ = unix.Fadvise(int(f.Fd()), offset, n, unix.FADV_DONTNEED)
}
