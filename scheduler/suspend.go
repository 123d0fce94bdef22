package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Suspend starts nothing more for the cluster, in this service at once and in all others before their next job: it is
// written into each of its repositories. What runs goes on to its end. Errors match ErrUnknown, or say where it could not
// be written; it holds wherever it could.
func (s *Service) Suspend(ctx context.Context, cluster, by, reason string) error {
	return s.say(ctx, cluster, repository.Suspension{Suspended: true, Time: time.Now(), By: by, Reason: reason})
}

// Resume ends what Suspend began, for all services. What was missed is caught up once. Errors match ErrUnknown, ErrSuspended
// if the configuration suspends the cluster, or say where it could not be written.
func (s *Service) Resume(ctx context.Context, cluster, by string) error {
	return s.say(ctx, cluster, repository.Suspension{Time: time.Now(), By: by})
}

func (s *Service) say(ctx context.Context, cluster string, word repository.Suspension) error {
	w, spec, err := s.find(cluster)
	if err != nil {
		return err
	}
	if !word.Suspended && spec.Suspend {
		return fmt.Errorf("cluster %s is %w by the configuration: remove suspend there", cluster, ErrSuspended)
	}
	stores, err := s.open(ctx, spec)
	if err != nil {
		return err
	}
	var last repository.Suspension
	var errs error
	for _, store := range stores {
		said, err := store.Cluster.WriteSuspension(ctx, word)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("repository %s: %w", store.Repository, err))
		} else if said.Time.After(last.Time) {
			last = said
		}
	}
	if !last.Time.IsZero() {
		w.board.set(func(s *Status) { s.Suspension = shown(last) })
		w.asks.look()
	}
	return errs
}

// shown is word for people, nil if nothing is suspended.
func shown(word repository.Suspension) *Suspension {
	if !word.Suspended {
		return nil
	}
	return &Suspension{Since: word.Time.UTC(), By: word.By, Reason: word.Reason}
}

// lastWord is the last that was said in any of the stores, for a read each. Where any store will do, those that do not answer
// are left out. damaged are words that count for nothing.
func lastWord(
	ctx context.Context, stores []backup.Store, require backup.Require,
) (last repository.Suspension, damaged, err error) {
	answered := 0
	for _, store := range stores {
		word, e := store.Cluster.Suspension(ctx)
		switch {
		case errors.Is(e, repository.ErrDamaged):
			damaged = errors.Join(damaged, fmt.Errorf("repository %s: %w", store.Repository, e))
		case e != nil:
			err = errors.Join(err, fmt.Errorf("repository %s: %w", store.Repository, e))
			continue
		}
		answered++
		if word.Time.After(last.Time) {
			last = word
		}
	}
	if answered > 0 && require == backup.Any {
		err = nil
	}
	return last, damaged, err
}

// recall learns whether the cluster is suspended, as the stores have it. Where any of them will do, those that do not
// answer are left out.
func (h *hand) recall(ctx context.Context, stores []backup.Store, require backup.Require) error {
	word, damaged, err := lastWord(ctx, stores, require)
	if damaged != nil {
		h.say(storage.Warning, "a suspension counts for nothing: %v", damaged)
	}
	if err != nil {
		return err
	}
	h.board.set(func(s *Status) { s.Suspension = shown(word) })
	return nil
}

// suspended says what suspends the cluster, "" if nothing does.
func (h *hand) suspended() string {
	if h.spec.Suspend {
		return "suspended by the configuration"
	}
	if s := h.board.get().Suspension; s != nil {
		return fmt.Sprintf("suspended by %s: %s", s.By, s.Reason)
	}
	return ""
}

// resumed looks whether the cluster is suspended no longer.
func (w *worker) resumed(ctx context.Context) bool {
	if w.spec.Suspend || w.service.looks.Acquire(ctx, 1) != nil {
		return false
	}
	defer w.service.looks.Release(1)
	stores, err := w.stores(ctx)
	if err == nil {
		err = w.recall(ctx, stores, w.spec.Backup.Require)
	}
	if err != nil {
		w.say(storage.Warning, "whether it is still suspended: %v", err)
	}
	return w.suspended() == ""
}
