//go:build !linux

package process

import "syscall"

// diesWithParent exists on Linux only; elsewhere a test binary that is killed leaves its servers behind.
func diesWithParent() *syscall.SysProcAttr {
	return nil
}
