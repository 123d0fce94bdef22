package child

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

// setNice is for every thread: Linux has a niceness for each, and a new thread has that of the one that made it. So it goes
// on until all that are there have it.
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

// noNice is what the system call adds, so that a niceness below 0 is no error.
const noNice = 20

// setThreadNice reports whether the thread had another one.
func setThreadNice(thread string, nice int) (bool, error) {
	id, err := strconv.Atoi(thread)
	if err != nil {
		return false, err
	}
	had, err := syscall.Getpriority(syscall.PRIO_PROCESS, id)
	if errors.Is(err, syscall.ESRCH) { // it has ended meanwhile
		return false, nil
	}
	if err != nil || noNice-had >= nice { // one that is nicer already stays so
		return false, err
	}
	err = syscall.Setpriority(syscall.PRIO_PROCESS, id, nice)
	if errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	return true, err
}
