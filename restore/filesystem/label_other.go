//go:build !linux

package filesystem

// CopyLabel returns nil: only Linux has SELinux labels.
func CopyLabel(string, string) error { return nil }
