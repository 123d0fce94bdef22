package swap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/restore/filesystem"
)

// holdLocks takes the locks that etcd takes in the live data, so that no etcd can start on the data before it is moved aside. It
// refuses if etcd has one of them.
func (s *Swap) holdLocks() (release func(), err error) {
	var held []interface{ Close() error }
	release = func() {
		for _, lock := range held {
			lock.Close()
		}
	}
	logs, err := filepath.Glob(filepath.Join(s.walDir(), "*.wal"))
	if err != nil {
		return nil, err
	}
	for _, file := range logs {
		lock, err := fileutil.TryLockFile(file, os.O_WRONLY, 0o600)
		if err != nil {
			release()
			return nil, s.lockError(file, err)
		}
		held = append(held, lock)
	}
	file := s.database()
	lock, err := lockDatabase(file)
	if errors.Is(err, fs.ErrNotExist) {
		return release, nil
	}
	if err != nil {
		release()
		return nil, s.lockError(file, err)
	}
	held = append(held, lock)
	return release, nil
}

// lockDatabase locks file as bbolt does.
func lockDatabase(file string) (*os.File, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fileutil.ErrLocked
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// closeTries and closePause bound the wait for an etcd that opened data before the data was moved aside.
var closeTries = 200

const closePause = 50 * time.Millisecond

// checkNoneOpen must pass before the data that is aside as name replaces a blocker. It refuses while a process has the database of other
// data that is aside open. An etcd may have opened that database before it was moved aside, and wait for its lock ever since. Once such an
// etcd gets the lock, it opens the log by its path: it exits if a blocker is there, but would use a log that has replaced the blocker.
func (s *Swap) checkNoneOpen(name string) error {
	for _, other := range []string{newName, oldName, failedName} {
		if other == name {
			continue
		}
		err := waitClosed(s.asideDatabase(other))
		if errors.Is(err, errOpen) {
			return fmt.Errorf("%w: a process has %s open, which etcd used before: stop etcd and what starts it, then run the same command again",
				ErrInUse, s.asideDatabase(other))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var errOpen = errors.New("the file is open")

// waitClosed waits until no process has file open. The error is errOpen if one still has it.
func waitClosed(file string) error {
	for range closeTries {
		open, err := filesystem.IsOpen(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // a blocker is aside
			return nil
		}
		if err != nil || !open {
			return err
		}
		time.Sleep(closePause)
	}
	return errOpen
}

// asideDatabase returns the file of the database that is aside under name.
func (s *Swap) asideDatabase(name string) string {
	if s.data.sub == member {
		return filepath.Join(s.data.at(name), "snap", "db")
	}
	return filepath.Join(s.data.at(name), member, "snap", "db")
}

func (s *Swap) lockError(file string, err error) error {
	if errors.Is(err, fileutil.ErrLocked) {
		return s.runs()
	}
	return fmt.Errorf("lock %s: %w", file, err)
}

// runs returns the error for a member that runs.
func (s *Swap) runs() error {
	return fmt.Errorf("%w: etcd runs on %s: stop etcd, then run the same command again", ErrInUse, s.DataDir)
}

// walDir returns the directory of the live log.
func (s *Swap) walDir() string {
	if s.log != nil {
		return s.WALDir
	}
	return filepath.Join(s.DataDir, member, "wal")
}

// database returns the file of the live database.
func (s *Swap) database() string { return filepath.Join(s.DataDir, member, "snap", "db") }
