package archive

import (
	"context"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

const (
	newestBackups  = 6               // number of backups to read; Survey reads more to distinguish histories
	historyRecheck = 5 * time.Minute // an operator may have confirmed the change, or taken a backup of the right cluster
)

// watchHistory reports while the newest backups are of a history that is not the cluster's own, for example of an empty cluster.
// It returns when ctx ends, or when the newest backups are of the cluster's own history.
func (w *work) watchHistory(ctx context.Context) {
	for {
		changed, err := w.changedHistory(ctx)
		if err == nil {
			w.reportChanged(changed)
		}
		if err == nil && changed == "" || storage.Sleep(ctx, historyRecheck) != nil {
			return
		}
	}
}

// changedHistory returns, in words, how the history of the newest backups differs from that of the earlier ones, "" if it does not.
func (w *work) changedHistory(ctx context.Context) (string, error) {
	s, err := w.to.Survey(ctx, repository.SurveyOptions{Newest: newestBackups})
	if err != nil {
		return "", err
	}
	change, changed := catalog.NewChange(w.to.Name(), slices.Concat(s.Backups, s.Past))
	if !changed {
		return "", nil
	}
	return change.String(), nil
}

// reportChanged sets Status.Changed, and warns if it is new.
func (w *work) reportChanged(changed string) {
	known := false
	w.board.set(func(s *Status) { known, s.Changed = s.Changed == changed, changed })
	if !known && changed != "" {
		w.warn("%s: dr pin latest --confirm confirms it, see ClusterChanged in the runbooks", changed)
	}
}
