//go:build !linux

package filesystem

// IsOpen returns false: it is implemented only on Linux.
func IsOpen(string) (bool, error) { return false, nil }
