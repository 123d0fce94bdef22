//go:build unix && !linux

package restore

// isMountRoot returns false: on this system only device numbers show a mount point.
func isMountRoot(string) bool { return false }
