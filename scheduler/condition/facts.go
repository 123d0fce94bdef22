package condition

import (
	"cmp"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/check"
)

// Facts are what is known of one cluster. What nobody has looked at is zero, and nothing is wrong with it.
type Facts struct {
	Cluster      string
	Since        time.Time // when it began to be looked at; zero: just now
	Agreed       Agreed
	Repositories []Repository // each name once
	Jobs         Jobs
	Fault        string       // why the cluster's configuration, as it is written now, is not in force; "": it is, or is not known
	Log          *Log         // nil: it is not archived by who asks
	Checks       []check.Line // of the cluster itself, as cluster.Check has found them
	Limits       Limits
}

// Agreed is what a cluster is to have.
type Agreed struct {
	Written   bool          // false: there is no configuration, and the rest is not known
	Suspended bool          // no backup is late
	Slack     time.Duration // by how much one may be late
	Encrypted bool
	Proven    bool      // it is to be proven again and again
	Drill     time.Time // when a drill is or was due, after the last one; zero: never
}

// Repository is a place for backups, and how the cluster stands there.
type Repository struct {
	Standing
	URL    string // for commands, without secrets
	Locked bool   // what is written there is
	Signed bool
	Logged bool // the log is to be archived there
}

// Jobs are how the work of this service goes.
type Jobs struct {
	Failures int    // tries of a backup in a row that failed
	Problem  string // why the last one did
	Queued   bool   // a backup is due and waits for its turn among other clusters
	Unpruned string // why old backups stay; "": they do not
	Drills   []Drill
}

// Drill is how a drill went.
type Drill struct {
	Repository string
	Time       time.Time
	Verdict    catalog.Verdict
	Finding    string
}

// Log is how a cluster's log is being archived.
type Log struct {
	Problem  string        // what it waits for; "" if nothing
	Known    bool          // Lag is
	Lag      time.Duration // the time of which not all is stored; while it is not known all since Facts.Since counts
	Purges   bool          // Headroom is known
	Headroom time.Duration // until etcd purges what is not stored
	Spool    int64         // bytes that wait for the store
	SpoolMax int64         // 0: there is no spool
	Diverged string        // how the members' key spaces differ, in words; "" while no difference is known
}

// Limits say from where on something is wrong. The zero Limits are the defaults, and so is each that is zero.
type Limits struct {
	Failures    int           // tries in a row; 3
	Shrunk      float64       // what is left of the usual size, or keys, 0 to 1; 0.5
	Proven      time.Duration // since the last verify or drill; 7 days
	DrillLate   time.Duration // since a drill was due; 6 hours
	Lag         time.Duration // 5 minutes
	Headroom    time.Duration // an hour
	Spool       float64       // full, 0 to 1; 0.8
	Certificate time.Duration // before its end; 14 days
	Accept      []Name        // these are not told: somebody wants it so
}

const (
	certificateCritical = 48 * time.Hour
	lagCritical         = 6                // times Lag
	logStopped          = 10 * time.Minute // a backup came so much later than the end of the log, and has more
)

// orDefaults fills in what l does not say.
func (l Limits) orDefaults() Limits {
	l.Failures = cmp.Or(l.Failures, 3)
	l.Shrunk = cmp.Or(l.Shrunk, 0.5)
	l.Proven = cmp.Or(l.Proven, 7*24*time.Hour)
	l.DrillLate = cmp.Or(l.DrillLate, 6*time.Hour)
	l.Lag = cmp.Or(l.Lag, 5*time.Minute)
	l.Headroom = cmp.Or(l.Headroom, time.Hour)
	l.Spool = cmp.Or(l.Spool, 0.8)
	l.Certificate = cmp.Or(l.Certificate, 14*24*time.Hour)
	return l
}
