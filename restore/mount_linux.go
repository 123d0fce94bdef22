package restore

import "golang.org/x/sys/unix"

// isMountRoot also recognises bind mounts, which have their parent's device number, such as a hostPath in a container. On kernels before
// 5.8 it returns false.
func isMountRoot(path string) bool {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS, &s)
	return err == nil && s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
