package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// diesWithParent returns attributes with which the kernel kills the child when the test binary ends for any reason,
// including a timeout's panic.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// Freeze stops a process and waits until all of its threads are stopped: on a loaded machine they may run on for a
// while.
func Freeze(pid int) error {
	err := syscall.Kill(pid, syscall.SIGSTOP)
	if err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	for deadline := time.Now().Add(time.Minute); !frozen(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d does not stop", pid)
		}
	}
	return nil
}

// frozen reports whether all threads are stopped, by the letter after the name in brackets in their stat
// (proc_pid_stat(5)).
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
