package scheduler

import (
	"cmp"
	"context"

	"github.com/etcd-dr/etcd-dr/storage/backups"
)

// triggered returns which trigger makes a backup due, or "".
func (w *worker) triggered(ctx context.Context) (string, error) {
	t := w.spec.Triggers
	if t.Revisions > 0 {
		revision, err := w.service.Revision(ctx, w.spec)
		if err != nil {
			return "", err
		}
		why := t.InRevision(revision, w.last)
		if why != "" {
			return why, nil
		}
	}
	if !t.ReadsLog() {
		return "", nil
	}
	return w.triggeredByLog(ctx)
}

// triggeredByLog returns which trigger the log in the first repository fires, or "".
func (w *worker) triggeredByLog(ctx context.Context) (why string, err error) {
	stores, err := w.stores()
	if err != nil {
		return "", err
	}
	ended := w.group.reads.do(ctx, readTime, func(ctx context.Context) {
		log, failed := stores[0].Cluster.Load(ctx, backups.LoadOptions{Newest: 1, Log: true})
		err = failed
		if err == nil {
			why = w.spec.Triggers.InLog(log, w.last)
		}
	})
	return why, cmp.Or(ended, err)
}
