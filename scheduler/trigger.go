package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// triggered says why a backup is due besides the schedule, "" if none is.
func (w *worker) triggered(ctx context.Context) (string, error) {
	t := w.spec.Triggers
	if t.Revisions > 0 {
		revision, err := w.service.Revision(ctx, w.spec)
		if err != nil {
			return "", err
		}
		if n := revision - w.last.Revision; n >= t.Revisions {
			return fmt.Sprintf("%d revisions since the last backup", n), nil
		}
	}
	if t.Bytes == 0 && !t.Gap {
		return "", nil
	}
	stores, err := w.stores()
	if err != nil {
		return "", err
	}
	var text string
	ended := w.lane.reads.take(ctx, readTime, func(ctx context.Context) {
		var catalog catalog.Catalog
		if catalog, err = stores[0].Cluster.Load(ctx, repository.LoadOptions{Newest: 1, Log: true}); err == nil {
			text = t.inLog(catalog, w.last)
		}
	})
	return text, cmp.Or(ended, err)
}

// inLog looks at the log of a catalog that holds only the newest backup.
func (t Triggers) inLog(c catalog.Catalog, last Last) string {
	var bytes int64
	for _, window := range c.Windows() {
		bytes += window.Bytes
	}
	if t.Bytes > 0 && bytes >= t.Bytes {
		return fmt.Sprintf("%d bytes of log since the last backup", bytes)
	}
	if !t.Gap {
		return ""
	}
	var end time.Time
	for _, gap := range c.Gaps() {
		end = later(end, later(gap.Since, gap.Until))
	}
	if !end.After(last.Started) {
		return ""
	}
	why := fmt.Sprintf("a gap in the log until %s", end.UTC().Format(time.RFC3339))
	// By the clock of an agent that is ahead the gap may not be over yet, and another backup of it would be the same.
	if newest, err := c.Latest(); err == nil && newest.Labels[LabelTrigger] == why {
		return ""
	}
	return why
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
