package swap

import (
	"path/filepath"
	"testing"
)

// Step carries out one action towards a goal.
func (s *Swap) Step(goal Goal) (more bool, err error) { return s.step(goal) }

// Failed returns the directory of new data that was taken away again.
func Failed(s *Swap) string { return filepath.Dir(filepath.Dir(s.asideDatabase(failedName))) }

// CheckSpace is checkSpace.
func (s *Swap) CheckSpace(data, wal int64) error { return s.checkSpace(data, wal) }

// WaitLess shortens the wait of a test for processes that have old data open.
func WaitLess(t *testing.T) {
	before := closeTries
	closeTries = 2
	t.Cleanup(func() { closeTries = before })
}

// HoldLocks is holdLocks.
func (s *Swap) HoldLocks() (release func(), err error) { return s.holdLocks() }

// CloseHeld is CloseLive by a caller that holds the locks.
func (s *Swap) CloseHeld() error { return s.data.exchange(oldName) }
