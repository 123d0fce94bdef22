package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/suspension"
)

// Suspend stops the service from starting jobs for the cluster. The suspension is written into each repository, so other
// services obey from their next job on. Running jobs continue. Errors match ErrUnknown, or name the repositories that
// could not be written. In the others the suspension is in effect.
func (s *Service) Suspend(ctx context.Context, cluster, by, reason string) error {
	return s.writeSuspension(ctx, cluster, suspension.Suspension{Suspended: true, Time: time.Now(), By: by, Reason: reason})
}

// Resume ends a Suspend, for all services. One backup catches up on all missed slots. Errors match ErrUnknown, or
// ErrSuspended if the configuration suspends the cluster, or name the repositories that could not be written.
func (s *Service) Resume(ctx context.Context, cluster, by string) error {
	return s.writeSuspension(ctx, cluster, suspension.Suspension{Time: time.Now(), By: by})
}

func (s *Service) writeSuspension(ctx context.Context, cluster string, written suspension.Suspension) error {
	w, spec, err := s.find(cluster)
	if err != nil {
		return err
	}
	if !written.Suspended && spec.Suspend {
		return fmt.Errorf("cluster %s is %w by the configuration: remove suspend there", cluster, ErrSuspended)
	}
	stores, err := s.open(spec)
	if err != nil {
		return err
	}
	stored := make([]suspension.Suspension, len(stores))
	_, errs := askAll(ctx, stores, func(ctx context.Context, n int, store backup.Store) (err error) {
		stored[n], err = store.Cluster.Services().Write(ctx, written)
		return err
	})
	var last suspension.Suspension
	for _, one := range stored {
		if one.Time.After(last.Time) {
			last = one
		}
	}
	if !last.Time.IsZero() {
		w.board.set(func(s *Status) { s.Suspension = shown(last) })
		w.requests.wake()
	}
	return errs
}

// shown returns stored in the form of a Status; nil if it suspends nothing.
func shown(stored suspension.Suspension) *Suspension {
	if !stored.Suspended {
		return nil
	}
	return &Suspension{Since: stored.Time.UTC(), By: stored.By, Reason: stored.Reason}
}

// suspensionIn holds the suspension that some stores contain.
type suspensionIn struct {
	last     suspension.Suspension // the newest in any of them; zero: none
	damaged  error                 // names the damaged documents, which are ignored
	answered []backup.Store
}

// readSuspension reads the suspension in all stores. If require is Any, it omits stores that do not answer.
func readSuspension(ctx context.Context, stores []backup.Store, require spec.Require) (in suspensionIn, err error) {
	stored, damaged := make([]suspension.Suspension, len(stores)), make([]error, len(stores))
	answered, failed := askAll(ctx, stores, func(ctx context.Context, n int, store backup.Store) (err error) {
		stored[n], err = store.Cluster.Services().Read(ctx)
		if errors.Is(err, catalog.ErrDamaged) {
			damaged[n], err = fmt.Errorf("repository %s: %w", store.Repository, err), nil
		}
		return err
	})
	in = suspensionIn{damaged: errors.Join(damaged...), answered: answered}
	for _, one := range stored {
		if one.Time.After(in.last.Time) {
			in.last = one
		}
	}
	return in, enough(answered, failed, require)
}

// updateSuspension updates the status by the suspension in the stores, and returns the stores that answered. With spec.All it fails
// unless all have answered.
func (h *loop) updateSuspension(ctx context.Context, stores []backup.Store, require spec.Require) ([]backup.Store, error) {
	in, err := readSuspension(ctx, stores, require)
	if in.damaged != nil {
		h.report(storage.Warning, "ignoring a damaged suspension: %v", in.damaged)
	}
	if err != nil {
		return nil, err
	}
	h.board.set(func(s *Status) { s.Suspension = shown(in.last) })
	return in.answered, nil
}

// suspended returns the reason why the cluster is suspended, or "".
func (h *loop) suspended() string {
	if h.spec.Suspend {
		return "suspended by the configuration"
	}
	s := h.board.get().Suspension
	if s != nil {
		return fmt.Sprintf("suspended by %s: %s", s.By, s.Reason)
	}
	return ""
}

// resumed reads the suspension again, and reports whether the cluster is no longer suspended.
func (w *worker) resumed(ctx context.Context) bool {
	if w.spec.Suspend {
		return false
	}
	ended := w.group.firstReads.do(ctx, askTime, func(ctx context.Context) {
		stores, err := w.stores()
		if err == nil {
			_, err = w.updateSuspension(ctx, stores, w.spec.Backup.Require)
		}
		if err != nil {
			w.report(storage.Warning, "cannot find out whether the cluster is still suspended: %v", err)
		}
	})
	return ended == nil && w.suspended() == ""
}
