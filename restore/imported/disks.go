package imported

import (
	"context"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// PlanDisks returns the plan that salvages from the disks alone, without a repository. It accepts disks that a process holds if oldIsDead
// is true.
func PlanDisks(d plan.Disks, oldIsDead bool, now time.Time) (plan.Plan, error) {
	l := layout()
	l.OldIsDead = oldIsDead
	return plan.New(catalog.Catalog{}, plan.Target{Disks: &d}, l, now)
}

// FromDisks returns the database that p, a plan of PlanDisks, makes.
func FromDisks(ctx context.Context, p plan.Plan, o Options, report storage.Report) (*Database, error) {
	s := p.Salvage
	if s == nil || s.Database == nil {
		return nil, fmt.Errorf("%w: no database on the disks can be used: continue a backup with their logs, with dr restore --from-data-dir and --repo", fault.Refused)
	}
	last, err := newest(s.Dirs())
	if err != nil {
		return nil, fmt.Errorf("read the times of the files: %w", err)
	}
	d, f, err := o.run(ctx, job{Disks: &p}, report)
	if err != nil {
		return nil, err
	}
	origin := o.origin(catalog.OriginSalvage, last)
	origin.Salvage = salvageOf(s, f)
	origin.Salvage.Most = max(origin.Salvage.Most, p.Bump.Known) // of all disks, used or not
	d.describe(f, origin)
	d.Manifest.ClusterID, d.Manifest.Diverged = s.ClusterID, s.Disagreement
	if len(s.Members) > 0 {
		d.Manifest.Members = s.Members
	}
	d.Manifest.Member = memberOf(s)
	return d, nil
}

// salvageOf returns the record of the disks and of the certainty of the database that a run of s made.
func salvageOf(s *plan.Salvage, f found) *catalog.Salvage {
	to := &catalog.Salvage{
		Majority: s.Majority, Certain: f.Certain, LeftOut: s.LeftOut.Requests, Most: f.Revision + int64(s.LeftOut.Requests),
	}
	if s.Log != nil {
		to.Probable = s.Log.Probable.Requests
	}
	used := map[string]bool{}
	for _, dir := range s.Dirs() {
		used[dir] = true
	}
	for _, d := range s.Disks {
		to.Disks = append(to.Disks, catalog.SalvagedDisk{Dir: d.Dir, Member: d.Member, Name: d.Name, Used: used[d.Dir]})
	}
	for _, m := range s.Members {
		if !m.Learner {
			to.Voters++
		}
	}
	return to
}

// memberOf returns the member whose database is the base of s; the zero Member if it is unknown.
func memberOf(s *plan.Salvage) catalog.Member {
	base := s.BaseDir()
	for _, d := range s.Disks {
		if d.Dir != base {
			continue
		}
		for _, m := range s.Members {
			if m.ID == d.Member {
				return m
			}
		}
		return catalog.Member{ID: d.Member, Name: d.Name}
	}
	return catalog.Member{}
}

// salvage carries out the plan in the child's directory, and returns the revision up to which everything is known to be committed.
func (j job) salvage(ctx context.Context, report storage.Report) (certain int64, err error) {
	first, rest := certainPart(*j.Disks)
	prepared, err := restore.Preparation{Plan: first, Dir: j.Dir, Report: report}.Prepare(ctx)
	if err != nil || !rest {
		return prepared.Revision, err
	}
	_, err = restore.Preparation{Plan: *j.Disks, Dir: j.Dir, Report: report}.Continue(ctx)
	return prepared.Revision, err
}

// certainPart returns p without the requests that are only probable, and reports whether it has any.
func certainPart(p plan.Plan) (certain plan.Plan, rest bool) {
	if p.Salvage.Log == nil || p.Salvage.Log.Probable.Positions == 0 {
		return p, false
	}
	s, log := *p.Salvage, *p.Salvage.Log
	log.UpTo = log.Commit
	s.Log = &log
	if log.Commit <= log.After.Position {
		s.Log = nil
	}
	p.Salvage = &s
	return p, true
}
