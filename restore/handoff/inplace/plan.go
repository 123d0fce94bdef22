package inplace

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/serving"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// live is the target's cluster as it was before the restore. It is zero if no member answers.
type live struct {
	id       string // in hex
	leads    bool   // it has a leader
	revision int64  // the newest
	version  string // of etcd, the oldest
}

// inspector is the handoff.Manager of a restore: that of the target, which it also inspects through the client ports.
type inspector struct {
	Target
	restore *Restore
}

// Inspect implements handoff.Manager. The target learns the members of the backup, for names and peer URLs that it does not show.
func (i inspector) Inspect(ctx context.Context) (handoff.Handoff, error) {
	r := i.restore
	err := r.load(ctx)
	if err != nil {
		return handoff.Handoff{}, err
	}
	p := r.tryPlan(handoff.Handoff{})
	h, err := r.Manage(p.Members).Inspect(ctx)
	if err != nil {
		return h, err
	}
	r.Known = max(r.Known, r.live.revision) // a later plan must not continue below it
	r.live = r.askTarget(ctx, h)
	h.Serves = r.live.leads
	if r.isUnconfirmed(h) {
		h.Findings = append(h.Findings, r.unconfirmed(h))
	}
	if p.Backup == nil { // a backup that does not show its members can be planned only for those of the target
		p = r.tryPlan(h)
	}
	h.Findings = slices.Concat(h.Findings, r.describeLive(h), r.checkFit(ctx, h, p.Backup))
	return h, nil
}

// describeLive returns the facts about the target's cluster that a person should know.
func (r *Restore) describeLive(h handoff.Handoff) []handoff.Finding {
	isLive := func(b catalog.Backup) bool { return catalog.SameClusterID(b.ClusterID, r.live.id) }
	switch {
	case r.live.id == "" && holdsData(h):
		return []handoff.Finding{{
			Text:   fmt.Sprintf("no member of %s answers", h.Manager),
			Remedy: "expected if it is lost; else make its client URLs reachable from here: the restored members are checked through them",
		}}
	case r.live.id != "" && r.Open != nil && !slices.ContainsFunc(r.catalog.Backups, isLive):
		return []handoff.Finding{{
			Text:   fmt.Sprintf("%s runs cluster %s, of which the repository has no backup", h.Manager, r.live.id),
			Remedy: "expected if it was set up again, or gets the data of another cluster",
		}}
	}
	return nil
}

// holdsData reports whether a disk of h may hold data.
func holdsData(h handoff.Handoff) bool {
	return slices.ContainsFunc(h.Members, func(m handoff.Member) bool { return !m.Fresh })
}

// isUnconfirmed reports whether the restore would replace data on the disks of h without a confirmation.
func (r *Restore) isUnconfirmed(h handoff.Handoff) bool {
	return !r.Confirmed && holdsData(h)
}

// RefuseUnconfirmed refuses to replace data on the disks of h without a confirmation.
func (r *Restore) RefuseUnconfirmed(h handoff.Handoff) error {
	if !r.isUnconfirmed(h) {
		return nil
	}
	return fmt.Errorf("%w: %s", fault.Refused, r.unconfirmed(h))
}

// unconfirmed is the finding on a restore that would replace data without a confirmation.
func (r *Restore) unconfirmed(h handoff.Handoff) handoff.Finding {
	return handoff.Finding{
		Text:    fmt.Sprintf("the disks of %s may hold data, which the restore replaces", h.Manager),
		Remedy:  fmt.Sprintf("to confirm that, pass --confirm %s", r.Name),
		Refuses: !r.DryRun,
	}
}

// askTarget returns the state of the target's cluster.
func (r *Restore) askTarget(ctx context.Context, h handoff.Handoff) live {
	c, err := r.connect(ctx, h.Endpoints)
	if err != nil {
		return live{}
	}
	defer c.Close()
	found := live{id: fmt.Sprintf("%x", c.ID), leads: c.Quorum}
	for _, s := range c.Servers {
		found.revision = max(found.revision, s.Status.Header.Revision)
		if found.version == "" || isOlder(s.Status.Version, found.version) {
			found.version = s.Status.Version
		}
	}
	return found
}

// connect connects to the members at these client URLs.
func (r *Restore) connect(ctx context.Context, endpoints []string) (*cluster.Cluster, error) {
	access, err := r.Access(ctx)
	if err != nil {
		return nil, err
	}
	access.Endpoints = endpoints
	return cluster.Connect(ctx, access)
}

// verify checks the members.
func (r *Restore) verify(ctx context.Context, h handoff.Handoff, b handoff.Built) (handoff.Progress, error) {
	if r.Given != nil {
		err := r.startAgain(ctx, h, b)
		if err != nil {
			return handoff.Progress{}, err
		}
		h.Members = nil
		for _, m := range r.Given.Members {
			h.Members = append(h.Members, handoff.Member{Member: m, Away: slices.Contains(r.Without, m.Name)})
		}
	}
	access, err := r.Access(ctx)
	if err != nil {
		return handoff.Progress{}, err
	}
	p, err := serving.Check(ctx, access, h, b)
	if r.Given != nil && p.Waiting != "" {
		p.Waiting += ": run the same command on each host; if one is lost, run this command again with --without and the name of its member"
	}
	return p, err
}

// startAgain starts the member of this host if it has ended: a reboot, or a time limit of its service while the other hosts were not ready,
// must not leave it so.
func (r *Restore) startAgain(ctx context.Context, h handoff.Handoff, b handoff.Built) error {
	start := r.Manage(nil).Release
	if b.ClusterID == "" { // the check of a rollback
		start = r.Manage(nil).Return
	}
	_, err := start(ctx, h)
	return err
}

// layout returns the layout with the members of h.
func (r *Restore) layout(h handoff.Handoff) plan.Layout {
	l := r.Layout
	l.Known = max(r.Known, r.live.revision)
	for _, m := range h.Members {
		l.Members = append(l.Members, m.Member)
	}
	return l
}

// tryPlan returns the given plan, or one for the members of h, or of the backup if h has none. It is zero if there is no such plan.
func (r *Restore) tryPlan(h handoff.Handoff) plan.Plan {
	if r.Given != nil {
		return *r.Given
	}
	p, err := plan.New(*r.catalog, r.Point, r.layout(h), r.now)
	if err != nil {
		return plan.Plan{}
	}
	return p
}

// plan returns the given plan, or one for the members of h around the obstacles met.
func (r *Restore) plan(ctx context.Context, h handoff.Handoff, met []handoff.Met) (plan.Plan, error) {
	switch {
	case r.Given != nil && len(met) > 0:
		return plan.Plan{}, fmt.Errorf("%w: make another plan, which avoids that", met[len(met)-1].Error.Err())
	case r.Given != nil:
		return *r.Given, nil
	}
	err := r.load(ctx)
	if err != nil {
		return plan.Plan{}, err
	}
	var blocked []plan.Blocked
	for _, m := range met {
		blocked = append(blocked, plan.Blocked{Plan: m.Plan, Obstacle: m.Obstacle, Err: m.Error.Err()})
	}
	request := plan.Request{Catalog: *r.catalog, Target: r.Point, Layout: r.layout(h), Now: r.now}
	store, err := r.open(ctx)
	if err != nil {
		return plan.Plan{}, err
	}
	request.Catalog, err = restore.Detail(ctx, request, store.Log().Unfold, blocked...)
	if err != nil {
		return plan.Plan{}, err
	}
	p, err := plan.Around(request, blocked...)
	if err != nil {
		return plan.Plan{}, err
	}
	return p, r.refuseOthers(ctx, p, h)
}

// refuseOthers refuses while a member of the cluster that was backed up answers outside of the target, which is stopped: clients would
// see two clusters as one.
func (r *Restore) refuseOthers(ctx context.Context, p plan.Plan, h handoff.Handoff) error {
	if r.Clone {
		return nil
	}
	survivors, _ := restore.Survivors(ctx, p, r.Reach)
	for _, s := range survivors {
		if !r.isTarget(h, s) {
			return fmt.Errorf("%w: a member of the cluster that was backed up answers at %s, which is not one of %s: stop that cluster first, "+
				"or pass --old-is-dead if that is a different cluster, a member of the target under another name, or continues to serve next to its copy", fault.Refused, s.URL, h.Manager)
		}
	}
	return nil
}

// isTarget reports whether an answer is that of one of the target's members. It logs in nowhere: the URL is from the repository.
func (r *Restore) isTarget(h handoff.Handoff, a cluster.Answer) bool {
	for _, m := range h.Members {
		if slices.ContainsFunc(m.PeerURLs, func(u string) bool { return isSameHost(u, a.URL) }) {
			return true
		}
	}
	if slices.ContainsFunc(h.Endpoints, func(u string) bool { return isSameHost(u, a.URL) }) {
		return true
	}
	return r.live.id != "" && catalog.SameClusterID(a.ClusterID, r.live.id)
}

// isSameHost reports whether two URLs have the same host. A name in a Kubernetes cluster is complete or not: etcd-0.etcd.payments.svc is
// etcd-0.etcd.payments.svc.cluster.local. A name without a namespace is the same in each namespace, so it has to be equal.
func isSameHost(a, b string) bool {
	x, errX := url.Parse(a)
	y, errY := url.Parse(b)
	if errX != nil || errY != nil {
		return false
	}
	short, long := x.Hostname()+".", y.Hostname()+"."
	if len(short) > len(long) {
		short, long = long, short
	}
	return short == long || strings.Count(short, ".") > 2 && strings.HasPrefix(long, short)
}
