package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// diesWithParent has the kernel kill the child when the test binary ends in whatever way, a timeout's panic included.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// Freeze stops a process where it is, and waits until that has come to all of its threads: on a loaded machine they may
// go on for a while.
func Freeze(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	for deadline := time.Now().Add(time.Minute); !frozen(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d does not stop", pid)
		}
	}
	return nil
}

// frozen reads each thread's state from its stat (proc_pid_stat(5)): a letter behind the name in brackets.
func frozen(pid int) bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, stat := range stats {
		data, readErr := os.ReadFile(stat)
		name := bytes.LastIndexByte(data, ')')
		if readErr == nil && (name < 0 || len(data) < name+3 || data[name+2] != 'T') {
			return false
		}
	}
	return err == nil && len(stats) > 0
}
