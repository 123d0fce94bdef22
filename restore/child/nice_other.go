//go:build unix && !linux

package child

import "syscall"

// setNice sets the niceness of this process.
func setNice(nice int) error { return syscall.Setpriority(syscall.PRIO_PROCESS, 0, nice) }
