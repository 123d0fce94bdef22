package restore

import (
	"context"
	"fmt"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
)

// ask refuses while any member of the old cluster answers: two clusters that believe they are the same one are worse
// than none.
func (r *run) ask(ctx context.Context) error {
	if r.plan.OldIsDead || r.plan.Backup == nil {
		return nil
	}
	var urls []string
	for _, m := range r.plan.Backup.Members {
		urls = append(urls, m.ClientURLs...)
	}
	for _, answer := range cluster.Knock(ctx, urls) {
		switch {
		case !answer.Alive:
		case answer.ClusterID != "" && answer.ClusterID != r.plan.Backup.ClusterID:
			r.say("ask", storage.Note, "another cluster, %s, answers at %s", answer.ClusterID, answer.URL)
		default:
			return fmt.Errorf("%w: the old cluster still answers at %s: stop every old member first, or say --old-is-dead if that is not it",
				ErrRefused, answer.URL)
		}
	}
	return nil
}
