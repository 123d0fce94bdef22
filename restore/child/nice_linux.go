package child

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

// setNice sets the niceness of every thread: on Linux each thread has its own, and a new thread inherits that of its creator.
// It repeats until no thread has changed.
func setNice(nice int) error {
	for changed := true; changed; {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		changed = false
		for _, thread := range threads {
			set, err := setThreadNice(thread.Name(), nice)
			if err != nil {
				return err
			}
			changed = changed || set
		}
	}
	return nil
}

// noNice is the value that getpriority returns for niceness 0: the system call returns 20 minus the niceness, which is never
// negative.
const noNice = 20

// setThreadNice raises the niceness of a thread to nice, and reports whether it changed.
func setThreadNice(thread string, nice int) (bool, error) {
	id, err := strconv.Atoi(thread)
	if err != nil {
		return false, err
	}
	had, err := syscall.Getpriority(syscall.PRIO_PROCESS, id)
	if errors.Is(err, syscall.ESRCH) { // the thread has ended
		return false, nil
	}
	if err != nil || noNice-had >= nice { // never lower a niceness
		return false, err
	}
	err = syscall.Setpriority(syscall.PRIO_PROCESS, id, nice)
	if errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	return true, err
}
