package swap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// CloseLive closes the path that etcd uses: it gives the new data the owner, the mode and the SELinux label of the old data, moves the old
// data aside, and puts blockers in its place. It refuses while etcd runs, and unless the new data is complete and was built for the live
// data.
func (s *Swap) CloseLive() error { return s.reach(Close) }

// ErrInUse reports that another process uses the disk: etcd, or another dr. It matches fault.Refused. Once that process has ended, the same
// call may succeed.
var ErrInUse = fault.New(fault.Refused, "in use")

// Place puts the new data in the place of the blockers. It refuses while a process has the old data open.
func (s *Swap) Place() error { return s.reach(Place) }

// Withdraw moves the new data aside, to the directory failed, because etcd may have started on it, and puts blockers in its place. It refuses
// while etcd runs. It does nothing if the new data is not live.
func (s *Swap) Withdraw() error { return s.reach(Withdraw) }

// Undo puts the old data back. Restored data on which etcd may have started is kept in failed. If there was no old data, the blockers stay
// until Discard or Clean. Undo refuses while etcd runs.
func (s *Swap) Undo() error { return s.reach(Undo) }

// Block puts a guard at the live path of data that is lost, in the place of a blocker. It refuses if anything else is there.
func (s *Swap) Block() error {
	err := os.MkdirAll(filepath.Dir(s.data.live), 0o700) // on a new disk
	if err != nil {
		return err
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	f, err := s.facts()
	switch {
	case err != nil || f.Data.Live == Guard:
		return err
	case f.Data.Live != Missing && f.Data.Live != Blocker:
		return fmt.Errorf("restore %s of %s: %w: the old data is lost, and %s (%s) is in its place: if nothing there is needed, move it aside; "+
			"else keep etcd from starting there, and restore again", s.ID, s.DataDir, fault.Refused, s.data.live, f.Data.Live)
	}
	return s.data.guard()
}

// reach carries out one action after the other until the disk is at goal.
func (s *Swap) reach(goal Goal) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	for {
		more, err := s.step(goal)
		if err != nil || !more {
			return err
		}
	}
}

// step carries out the next action towards goal; more is false if there is none.
func (s *Swap) step(goal Goal) (more bool, err error) {
	f, err := s.facts()
	if err != nil {
		return false, err
	}
	a, err := next(goal, f)
	if err != nil {
		return false, s.refusal(goal, f.State(), err)
	}
	if a.do == done {
		return false, nil
	}
	err = s.act(a, f.slot(a.part).Live)
	if err != nil {
		return false, fmt.Errorf("restore %s of %s: %w", s.ID, s.DataDir, err)
	}
	return true, nil
}

// refusal adds the name of s to err, which next returned for state. If a later restore is in the place of s, refusal returns an
// error that names that restore as the one to undo first.
func (s *Swap) refusal(goal Goal, state State, err error) error {
	later := s.later(state)
	if later == nil {
		return fmt.Errorf("restore %s of %s: %w", s.ID, s.DataDir, err)
	}
	return fmt.Errorf("restore %s of %s: %w: cannot %s: the later restore %s is in its place: undo that one first: %s",
		s.ID, s.DataDir, fault.Refused, goal, later.ID, later.undoText())
}

// later returns the restore that replaced the data of s, if state shows that one did: its new data or its blocker is live. It returns nil
// if there is none.
func (s *Swap) later(state State) *Swap {
	if state != Blocked && state != Superseded {
		return nil
	}
	found, err := Find(s.DataDir)
	if err != nil {
		return nil // the caller reports the state itself
	}
	for _, o := range found {
		f, err := o.facts()
		if err == nil && o.ID != s.ID && (f.Data.Live == Blocker || f.Data.Live == NewDir) {
			return o
		}
	}
	return nil
}

// act carries out a. live is the kind of the live entry in the slot of a.
func (s *Swap) act(a action, live Kind) error {
	p := s.data
	if a.part == log {
		p = *s.log
	}
	switch a.do {
	case block:
		return p.block(p.live)
	case prepare:
		return p.block(p.at(a.with))
	case exchange:
		return s.exchange(p, a, live)
	}
	return fmt.Errorf("unknown action %+v: nothing was moved", a)
}

// exchange carries out the exchange a in p, the place of its slot. live is the kind of the live entry there.
func (s *Swap) exchange(p place, a action, live Kind) error {
	err := s.ready(a, live)
	if err != nil {
		return err
	}
	if directory.has(live) && a.part == data {
		release, err := s.holdLocks()
		if err != nil {
			return err
		}
		defer release()
	}
	return p.exchange(a.with)
}

// ready prepares the exchange a. While the old data is live, it gives the new data the attributes that adopt copies: a failure must come
// before the live path is closed. While a blocker is live, it checks that no process has other data open.
func (s *Swap) ready(a action, live Kind) error {
	if live == OldDir && a.part == data {
		return s.adopt()
	}
	if live == Blocker {
		return s.checkNoneOpen(a.with)
	}
	return nil
}

// adopt gives the new data the owner, the mode and the SELinux label of the live data.
func (s *Swap) adopt() error {
	for _, p := range s.places() {
		err := p.adopt()
		if err != nil {
			return fmt.Errorf("give the new data the owner, the mode and the label of %s: %w", p.live, err)
		}
	}
	return nil
}

// inherit gives the new data the owner of an empty data dir, which may be prepared for etcd's user. A permission error
// is ignored: such a process already runs as the member's user.
func (s *Swap) inherit() error {
	info, err := os.Stat(s.DataDir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	for _, p := range s.places() {
		err := filesystem.InheritOwner(s.DataDir, p.at(newName))
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// lockTime is how long a Swap waits for a lock, which a Swap of another data dir in the same directory may hold for a moment.
const lockTime = 5 * time.Second

// lock excludes other Swaps of the same data dir. It locks the directory that contains the Swap's folder, so no lock file is left.
func (s *Swap) lock() (unlock func(), err error) {
	parent, err := os.Open(filepath.Dir(s.data.folder))
	if err != nil {
		return nil, err
	}
	err = filesystem.TryLock(lockTime, unix.EWOULDBLOCK, func() error { return unix.Flock(int(parent.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	switch {
	case err == nil:
		return func() { parent.Close() }, nil
	case !errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(fmt.Errorf("lock %s: %w", parent.Name(), err), parent.Close())
	}
	return nil, errors.Join(s.busy(), parent.Close())
}

// Review returns an error if Undo cannot put the old data back. It changes nothing.
func (s *Swap) Review() error {
	f, err := s.facts()
	if err != nil {
		return err
	}
	_, err = next(Undo, f)
	if err != nil {
		return s.refusal(Undo, f.State(), err)
	}
	return nil
}

func (s *Swap) busy() error {
	return fmt.Errorf("%w: another dr restore of %s is running: wait for it, or stop it", ErrInUse, s.DataDir)
}
