package swap

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/storage"
)

// Switch closes the live path and places the staged data. It refuses while etcd runs, or another member of the old cluster answers; the
// live data is unchanged then, and the staged data is kept.
func (s *Swap) Switch(ctx context.Context, report storage.Report) error {
	folder, err := s.lockFolder()
	if err != nil {
		return err
	}
	defer folder.Close()
	err = s.exchangeAll(ctx, report)
	if err != nil {
		return s.explain(err)
	}
	return nil
}

// exchangeAll closes the live path and places the staged data, after it has asked whether the old cluster answers.
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
	if v.State == Placed || r.Result == nil { // Place does nothing, or returns the reason why it cannot
		return s.Place()
	}
	err = restore.Ask(ctx, r.Plan, r.Result.ClusterID, report)
	if err != nil {
		return err
	}
	err = s.CloseLive()
	if err != nil {
		return err
	}
	return s.Place()
}

// explain adds to the error of Switch which data is in use.
func (s *Swap) explain(err error) error {
	f, lookErr := s.facts()
	switch {
	case lookErr != nil:
		return errors.Join(err, lookErr)
	case f.State() == Staged:
		return fmt.Errorf("restore %s is staged next to %s and not in use: %w", s.ID, s.DataDir, err)
	case f.Data.Live == Blocker:
		return fmt.Errorf("restore %s of %s is not complete, and etcd cannot start: run the same command again, or %s: %w",
			s.ID, s.DataDir, s.undoText(), err)
	}
	return err
}
