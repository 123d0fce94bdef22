package filesystem

import "golang.org/x/sys/unix"

// isMountRoot reports whether path is the root of a mount. That includes bind mounts, such as a hostPath in a container, which
// have their parent's device number. On kernels before 5.8 it returns false.
func isMountRoot(path string) bool {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS, &s)
	return err == nil && s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
