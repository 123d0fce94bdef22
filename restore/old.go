package restore

import (
	"context"
	"fmt"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage"
)

// ask refuses while any member of the old cluster answers: two clusters that believe they are the same one are worse
// than none.
func (r *run) ask(ctx context.Context) error {
	if r.plan.OldIsDead {
		return nil
	}
	if err := r.refuseHeld(); err != nil {
		return err
	}
	known, clusterID := r.plan.known()
	var urls []string
	for _, m := range known {
		urls = append(urls, m.ClientURLs...)
	}
	for _, answer := range cluster.Knock(ctx, urls) {
		switch {
		case !answer.Alive:
		case answer.ClusterID != "" && answer.ClusterID != clusterID:
			r.say("ask", storage.Note, "another cluster, %s, answers at %s", answer.ClusterID, answer.URL)
		default:
			return fmt.Errorf("%w: the old cluster still answers at %s: stop every old member first, or say --old-is-dead if that is not it",
				ErrRefused, answer.URL)
		}
	}
	return nil
}

// refuseHeld looks once more, for a member may have been started since the plan was made.
func (r *run) refuseHeld() error {
	if r.plan.Salvage == nil {
		return nil
	}
	for _, d := range r.plan.Salvage.Disks {
		held, err := salvage.Running(d.Dir)
		if err != nil {
			return err
		}
		if held {
			return refusedRunning(d.Dir)
		}
	}
	return nil
}
