package swap

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Choose returns the Swap for p, whose Into is the member's own place: the one on its disk that already has the new data of p, or a new
// one, whose Record is missing. It removes staged data of other plans, and refuses while the live data is blocked for another one.
func Choose(p plan.Plan, report storage.Report) (*Swap, error) {
	found, err := Find(p.Into.DataDir)
	if err != nil {
		return nil, err
	}
	for _, s := range found {
		use, err := s.serves(p, report)
		if err != nil || use {
			return s, err
		}
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	return New(hex.EncodeToString(id[:]), p.Into.DataDir, p.Into.WALDir)
}

// serves reports whether s can continue with p.
func (s *Swap) serves(p plan.Plan, report storage.Report) (bool, error) {
	f, err := s.facts()
	if err != nil {
		return false, err
	}
	r, err := s.Record()
	if err != nil {
		return false, err
	}
	same := r.Plan.Equivalent(p) && r.Plan.Into == p.Into
	switch state := f.State(); {
	case state == Placed || state == Undone:
		report.Say(storage.Event{Stage: "replace", Level: storage.Note, Object: s.data.folder, Message: fmt.Sprintf(
			"data of the earlier restore %s is kept in %s: dr restore --clean %s --data-dir %s removes it", s.ID, s.data.folder, s.ID, s.DataDir)})
		return false, nil
	case state == Unstaged || state == Staged && !same:
		report.Say(storage.Event{Stage: "replace", Level: storage.Note, Object: s.data.folder, Message: fmt.Sprintf(
			"removing the staged data of restore %s: it is not complete, or of another target", s.ID)})
		return false, s.clean()
	case same && state != Unknown && state != Withdrawn && state != Undoing:
		report.Say(storage.Event{Stage: "replace", Level: storage.Note, Object: s.data.folder,
			Message: "continues with the staged data of restore " + s.ID})
		return true, nil
	}
	return false, fmt.Errorf("%w: restore %s of %s is not complete (%s): repeat its command to complete it, or run dr restore --undo %s --data-dir %s",
		fault.Refused, s.ID, s.DataDir, f.State(), s.ID, s.DataDir)
}

// IsStaged reports whether the new data is complete, in use or not.
func (s *Swap) IsStaged() bool {
	r, err := s.Record()
	return err == nil && r.Result != nil
}

// Switch seals and places the staged data. It refuses while etcd runs, or another member of the old cluster answers; the live data is
// unchanged then, and the staged data is kept.
func (s *Swap) Switch(ctx context.Context, report storage.Report) error {
	err := s.exchangeAll(ctx, report)
	if err != nil {
		return fmt.Errorf("restore %s is staged next to %s and not in use: %w", s.ID, s.DataDir, err)
	}
	return nil
}

func (s *Swap) exchangeAll(ctx context.Context, report storage.Report) error {
	v, err := s.Look()
	if err != nil {
		return err
	}
	if v.Running && v.State == Staged {
		return s.runs()
	}
	r, err := s.Record()
	if err != nil {
		return err
	}
	if v.State == Placed || r.Result == nil {
		return s.Place()
	}
	err = restore.Ask(ctx, r.Plan, r.Result.ClusterID, report)
	if err != nil {
		return err
	}
	err = s.Seal()
	if err != nil {
		return err
	}
	return s.Place()
}
