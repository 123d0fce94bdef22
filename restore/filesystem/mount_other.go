//go:build unix && !linux

package filesystem

// isMountRoot returns false: on this system only device numbers show a mount point.
func isMountRoot(string) bool { return false }
