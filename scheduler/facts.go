package scheduler

import (
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/address"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Facts returns the facts from which package condition derives the conditions of s's cluster: standings in the repositories,
// and the status of the service that runs its jobs, if any. The caller adds the checks of the cluster itself.
func Facts(s spec.Spec, standings []Standing, status Status, now time.Time) condition.Facts {
	f := condition.Facts{
		Cluster: s.Cluster, Limits: s.Conditions, Jobs: jobsOf(status, now), Log: logOf(status.Archive, now),
		Agreed: condition.Agreed{
			Written: true, Suspended: s.Suspend || status.Suspension != nil, Slack: s.Backup.MaxStream,
			Encrypted: s.Backup.To.Seal().Encryption != "", Proven: !s.Drill.Schedule.None() || s.Conditions.Proven > 0,
		},
	}
	for _, standing := range standings {
		for i, r := range s.Repositories {
			if r.Name == standing.Repository {
				f.Repositories = append(f.Repositories, condition.Repository{
					Standing: standing, URL: address.Shown(r.URL), CredentialsDir: r.CredentialsDir, Locked: r.Policy.Lock.For > 0 || !lockable(r.URL), Signed: !r.Policy.Key.Trust().None(),
					Logged: i == 0 && s.Archive.Flush > 0, // the first repository has the log
				})
			}
		}
		if standing.Repository == s.Drill.Repository {
			f.Agreed.Drill = drillDue(s, standing, f.Jobs)
		}
	}
	return f
}

// lockable reports whether the store at url can lock objects: a file system cannot.
func lockable(url string) bool { return !strings.HasPrefix(url, "file:") }

// drillDue returns when the next drill is, or was, due; the zero Time: never. The first drill is due at the first slot after the
// oldest backup began.
func drillDue(s spec.Spec, standing Standing, jobs condition.Jobs) time.Time {
	last := standing.Oldest
	if standing.Drill != nil {
		last = standing.Drill.Time
	}
	for _, d := range jobs.Drills {
		last = storage.Later(last, d.Time)
	}
	if last.IsZero() {
		return last
	}
	return s.Drill.Schedule.Next(last)
}

// jobsOf returns the facts about jobs. It omits drills from the future, which a wrong clock has
// recorded.
func jobsOf(status Status, now time.Time) condition.Jobs {
	j := condition.Jobs{Failures: status.Failures, Problem: status.Problem, Queued: status.State == Queued, Unpruned: status.Unpruned}
	verdicts := map[Verdict]catalog.Verdict{Succeeded: catalog.Passed, Failed: catalog.Failed, NotRun: catalog.NotRun}
	for _, o := range status.Jobs {
		if o.Job == JobDrill && !o.Ended.IsZero() && !catalog.IsFuture(o.Began, now) {
			j.Drills = append(j.Drills, condition.Drill{
				Repository: o.Repository, Time: o.Began, Verdict: verdicts[o.Verdict], Finding: o.Message,
			})
		}
	}
	return j
}

// logOf returns the facts about the log, nil unless this service archives it now: on standby and at the start the
// facts are unknown.
func logOf(a *archive.Status, now time.Time) *condition.Log {
	if a == nil || a.State == archive.Standby || a.State == archive.Starting {
		return nil
	}
	l := &condition.Log{
		Problem: a.Problem, Spool: a.Spool.Bytes, SpoolMax: a.Spool.Max, Diverged: a.Diverged, Gap: a.GapReason,
	}
	l.Lag, l.Known = a.RPO(now)
	return l
}
