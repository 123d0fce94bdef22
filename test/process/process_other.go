//go:build !linux

package process

import "syscall"

// diesWithParent has an effect on Linux only; elsewhere a test binary that is killed leaves its servers running.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{}
}

// Freeze stops a process. Only on Linux does it wait until all of its threads are stopped.
func Freeze(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }
