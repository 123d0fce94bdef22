package swap

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"al.essio.dev/pkg/shellescape"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Choose returns the Swap for p: the one on the disk that already has the new data of p, or a new one without a Record. p.Into must be the
// member's own place. Choose undoes interrupted restores that cannot continue with p, and removes the staged data of other plans.
func Choose(p plan.Plan, report storage.Report) (*Swap, error) {
	err := finishCleans(p.Into.DataDir, report)
	if err != nil {
		return nil, err
	}
	found, err := Find(p.Into.DataDir)
	if err != nil {
		return nil, err
	}
	for _, s := range found {
		use, err := s.reuse(p, report)
		if err != nil || use {
			return s, err
		}
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	return New(hex.EncodeToString(id[:]), p.Into.DataDir, p.Into.WALDir)
}

// use names how Choose treats a Swap that is on the disk.
type use string

const (
	ignore  use = "ignore"  // the blocker of another restore is live
	proceed use = "proceed" // its new data is that of the plan
	keep    use = "keep"    // its data that is aside may be the last copy
	remove  use = "remove"  // its new data was never in use
	revert  use = "revert"  // a command that was interrupted is undone first
	refuse  use = "refuse"  // an operator must repair it first
)

// useOf returns what to do with a Swap in a state. same: the plan can use its new data. unused: etcd has never started on that data.
func useOf(state State, same, unused bool) use {
	switch state {
	case Blocked:
		return ignore
	case Placed:
		if same && unused {
			return proceed
		}
		return keep
	case Undone, Superseded, Vacated, Guarded:
		return keep
	case Unstaged, Stale:
		return remove
	case Staged:
		if same {
			return proceed
		}
		return remove
	case Closing, Closed, Placing:
		if same {
			return proceed
		}
		return revert
	case Exposed, Withdrawn, Undoing:
		return revert
	}
	return refuse
}

// reuse reports whether s can continue with p. If it cannot, reuse keeps, removes or undoes s, as useOf decides.
func (s *Swap) reuse(p plan.Plan, report storage.Report) (bool, error) {
	say := func(format string, args ...any) {
		report.Say(storage.Event{Stage: "replace", Level: storage.Note, Object: s.data.folder, Message: fmt.Sprintf(format, args...)})
	}
	r, err := s.Record()
	if errors.Is(err, fault.Damaged) && !s.isBlocking() {
		say("skipped restore %s: %v", s.ID, err)
		return false, nil
	}
	if err != nil && !errors.Is(err, fault.NotFound) {
		return false, err
	}
	f, err := s.facts()
	if err != nil {
		return false, err
	}
	same, err := s.isFor(r, p)
	if err != nil {
		return false, err
	}
	unused := false
	if f.State() == Placed {
		unused, err = s.isUnused(r)
		if err != nil {
			return false, err
		}
	}
	switch useOf(f.State(), same, unused) {
	case ignore:
		return false, nil
	case proceed:
		say("continues with the data of restore %s, which is %s", s.ID, f.State())
		return true, nil
	case keep:
		say("data of the earlier restore %s is kept in %s: %s removes it", s.ID, s.data.folder, shellescape.QuoteCommand(s.CleanCommand()))
		return false, nil
	case remove:
		say("removing the staged data of restore %s: it is incomplete, for another target, or built for other live data", s.ID)
		return false, s.clean()
	case revert:
		say("putting the old data back: restore %s, which is %s, was interrupted, or is for another target", s.ID, f.State())
		err = s.revert()
		if err != nil {
			return false, err
		}
		return s.reuse(p, report)
	}
	return false, fmt.Errorf("%w: restore %s of %s is not complete: %w", fault.Refused, s.ID, s.DataDir, f.remedy())
}

// isBlocking reports whether the blocker of s is at the live path of its data. It returns true if that path cannot be checked.
func (s *Swap) isBlocking() bool {
	live, err := s.data.kind(s.data.live, identities{})
	return err != nil || live == Blocker
}

// revert undoes s, unless another process is at work on it.
func (s *Swap) revert() error {
	folder, err := s.lockFolder()
	if err != nil {
		return err
	}
	defer folder.Close()
	return s.Undo()
}

// isFor reports whether p can use the new data that r describes.
func (s *Swap) isFor(r Record, p plan.Plan) (bool, error) {
	wal := ""
	if p.Into.WALDir != "" {
		var err error
		wal, err = resolve(p.Into.WALDir)
		if err != nil {
			return false, err
		}
	}
	return r.Result != nil && r.Plan.Into.Name == p.Into.Name && wal == s.WALDir && r.Plan.Equivalent(p), nil
}

// Built returns the result of Stage for p. It is nil if the new data is not complete, is not that of p, or has been undone.
func (s *Swap) Built(p plan.Plan) (*restore.Result, error) {
	r, err := s.Record()
	if errors.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	same, err := s.isFor(r, p)
	if err != nil || !same {
		return nil, err
	}
	f, err := s.facts()
	if err != nil || !slices.Contains([]State{Staged, Ready, Closing, Closed, Placing, Placed}, f.State()) {
		return nil, err
	}
	return r.Result, nil
}

// IsStaged reports whether the new data is complete, in use or not.
func (s *Swap) IsStaged() bool {
	r, err := s.Record()
	return err == nil && r.Result != nil
}
