// Package scheduler takes the backups of many clusters when they are due, and prunes what need not be kept.
//
//	Spec ──► what the repositories hold ──► due? ──► lease ──► still due? ──► backup ──► prune
//
// It keeps no state of its own: what was done is read from the repositories, so a service that is started on an empty
// machine goes on where the last one ended. Several may run with the same Specs: a lease says which one works, and what
// it has stored says that it is done.
package scheduler

import (
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/verify"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Config is all that one service looks after.
type Config struct {
	Specs       []Spec        // each cluster once
	Concurrency int           // backups at a time, above zero
	Lease       time.Duration // how long another service waits before it takes over; from MinLease to repository.MaxLease
	// Faulty are clusters of which the configuration is wrong as it is written now, and why. One that has a Spec too is looked
	// after as that says: by what was in force before.
	Faulty map[string]string
}

// MinLease is the shortest Config.Lease: a shorter one would end between two of its renewals.
const MinLease = time.Second

// Spec is what one cluster is to have: what dr.yaml says of it.
type Spec struct {
	Cluster string
	// Digest covers all that the Spec was made from, secrets too. Two Specs with one Digest are the same.
	Digest string

	Etcd         cluster.Config
	Repositories []Repository
	Backup       backup.Request // but for its Version, and the labels that say why
	Timeout      time.Duration  // of one backup with all that belongs to it
	Schedule     Schedule       // may be the zero one
	Triggers     Triggers
	Retention    retention.Policy // in each repository without its own; the zero one keeps everything
	Drill        Drill            // the zero one: never
	Archive      Archive          // the zero one: this service does not archive the log
	Observe      time.Duration    // how often the repositories and the cluster are looked at for conditions
	Conditions   condition.Limits // from where on something is wrong
	Suspend      bool             // start nothing
}

// Drill is how the restore of a cluster is practised.
type Drill struct {
	Schedule   Schedule           // the zero one: never by itself
	Repository string             // out of which one
	Assertions []verify.Assertion // what must be there
	Keys       seal.Keys          // that open the backups; without any a drill of what is encrypted is not run
	Dir        string             // where the scratch copies go; "": the system's temporary directory
	Limits     child.Limits       // of the process that restores and boots
}

// Archive is how a cluster's log is archived from its clients' port (source watch), into its first repository.
type Archive struct {
	Flush    time.Duration // how long a request waits at most before it is on its way; 0: the log is not archived
	Spool    string        // the folder in which segments wait while the store is away; "": none
	SpoolMax int64         // bytes that it holds at most
}

// Repository is a place for backups.
type Repository struct {
	Name     string // how it is named to people
	URL      string
	Pattern  string // from which URL was made by filling in the cluster's name; "": it is the same for all clusters
	Parallel int    // requests at a time for one large object
	Limit    int64  // bytes a second; 0: no limit
	Policy   repository.Policy
	// Retention takes the place of the clusters' there. The zero one: it has none of its own.
	Retention retention.Policy
}

// RetentionIn returns what is kept in the repository called name; the zero Policy keeps everything.
func (s Spec) RetentionIn(name string) retention.Policy {
	for _, r := range s.Repositories {
		if r.Name == name && r.Retention != (retention.Policy{}) {
			return r.Retention
		}
	}
	return s.Retention
}

// prunes reports whether anything is ever removed.
func (s Spec) prunes() bool {
	return slices.ContainsFunc(s.Repositories, func(r Repository) bool { return s.RetentionIn(r.Name) != (retention.Policy{}) })
}

// Triggers are what makes a backup due besides the schedule. The zero Triggers never do.
type Triggers struct {
	Revisions int64         // so many since the last backup
	Bytes     int64         // so many of the archived log since the last backup
	Gap       bool          // a gap in the archived log that no backup has come after
	Every     time.Duration // how often it is looked at, and so how often they can make one due
}

// None reports whether nothing is to be looked at.
func (t Triggers) None() bool { return t.Revisions == 0 && t.Bytes == 0 && !t.Gap }

// Due is when the next backup is due, if last is the newest: at once where there is none, else at the first moment of the
// schedule behind it, so that of many that were missed one is caught up. The zero Time is never: so where nothing says when,
// and drills alone are wanted.
func (s Spec) Due(last Last, now time.Time) time.Time {
	if last.Started.IsZero() && !(s.Schedule.None() && s.Triggers.None()) {
		return now
	}
	return s.Schedule.Next(last.Started)
}
