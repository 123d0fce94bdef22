package restore

import (
	"context"
	"fmt"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/reach"
)

// Ask refuses while a member of the cluster that p replaces answers. restored is the id of the restored cluster, whose members may
// already run; "": Ask refuses for them too.
func Ask(ctx context.Context, p plan.Plan, restored string, report storage.Report) error {
	r := &run{plan: p, report: report, result: Result{ClusterID: restored}}
	return r.ask(ctx)
}

// ask refuses while a member of the old cluster, or of one restored from it, answers: clients would see two clusters as one.
func (r *run) ask(ctx context.Context) error {
	if r.plan.OldIsDead {
		return nil
	}
	err := r.refuseHeld()
	if err != nil {
		return err
	}
	survivors, strangers := Survivors(ctx, r.plan, reach.Anywhere)
	for _, s := range survivors {
		if r.result.ClusterID == "" || !catalog.SameClusterID(s.ClusterID, r.result.ClusterID) {
			return fmt.Errorf("%w: the old cluster still answers at %s: stop every old member first, or pass --old-is-dead if that is a different cluster",
				fault.Refused, s.URL)
		}
	}
	for _, s := range strangers {
		r.say("ask", storage.Note, "another cluster, %s, answers at %s", s.ClusterID, s.URL)
	}
	return nil
}

// Survivors asks at all client URLs that the cluster which p replaces may have. It returns the answers of servers that may be its members,
// and those of servers that certainly belong to another cluster.
func Survivors(ctx context.Context, p plan.Plan, within reach.Reach) (survivors, strangers []cluster.Answer) {
	for _, answer := range cluster.Knock(ctx, p.Old.ClientURLs, within) {
		switch {
		case !answer.Alive:
		case p.IsStranger(answer.ClusterID, answer.Members):
			strangers = append(strangers, answer)
		default:
			survivors = append(survivors, answer)
		}
	}
	return survivors, strangers
}

// refuseHeld refuses while a process has locked one of the plan's disks. A member may have been started after the plan was made.
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
			return plan.RefuseRunning(d.Dir)
		}
	}
	return nil
}

// LiveRevision returns the newest revision that a live cluster reports at any client URL that p asks; 0 if none does. The caller stores
// it in Layout.Known, because the hosts that run one plan may reach different members.
func LiveRevision(ctx context.Context, p plan.Plan) int64 {
	return cluster.NewestRevision(ctx, p.Old.ClientURLs)
}

// Need returns the most that a run of p needs on the disks of its data dirs and of its --wal-dir, in bytes.
func Need(p plan.Plan) (data, wal int64) {
	r := &run{plan: p}
	if p.Into.WALDir != "" {
		wal = walSpace
	}
	return r.space(), wal
}
