package process

import "syscall"

// diesWithParent has the kernel kill the child when the test binary ends in whatever way, a timeout's panic included.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
