package restore

import "golang.org/x/sys/unix"

// isMountRoot sees bind mounts too, which have their parent's device number: a hostPath in a container, say. Kernels
// before 5.8 do not tell.
func isMountRoot(path string) bool {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS, &s)
	return err == nil && s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
