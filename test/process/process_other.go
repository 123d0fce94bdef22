//go:build !linux

package process

import "syscall"

// diesWithParent exists on Linux only; elsewhere a test binary that is killed leaves its servers behind.
func diesWithParent() *syscall.SysProcAttr {
	return nil
}

// Freeze stops a process where it is. Whether that has come to all of its threads only Linux tells.
func Freeze(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }
