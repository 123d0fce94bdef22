package condition

import (
	"cmp"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/check"
)

// Facts holds the known facts about one cluster. Unknown facts are zero, and cause no condition.
type Facts struct {
	Cluster      string
	Since        time.Time // start of the observation; zero: now
	Agreed       Agreed
	Repositories []Repository // each name once
	Jobs         Jobs
	Fault        string       // why the configuration as written is not in effect; "": it is, or is unknown
	Log          *Log         // nil: the caller does not archive it
	Checks       []check.Line // of the cluster itself, by cluster.Check
	Limits       Limits
}

// Agreed contains the promises of the configuration.
type Agreed struct {
	Written   bool          // the cluster has a configuration; false: the other fields are unknown
	Suspended bool          // no job is started, so no backup is late
	Slack     time.Duration // how late a backup may be
	Encrypted bool
	Proven    bool      // backups are to be proven regularly
	Drill     time.Time // when the drill after the last one is or was due; zero: never
}

// Repository is a place for backups, with the cluster's standing there.
type Repository struct {
	Standing
	URL string // for commands, without secrets
	// CredentialsDir is the folder with the credentials of the store, for commands; "": those of the environment are used.
	CredentialsDir string
	Locked         bool // objects are locked, or the store cannot lock them
	Signed         bool
	Logged         bool // the log is to be archived there
}

// Jobs holds the results of this service's jobs.
type Jobs struct {
	Failures int    // failed backups in a row
	Problem  string // of the last failure
	Queued   bool   // a backup is due, and waits for its turn
	Unpruned string // the error of the last pruning; "": none
	Drills   []Drill
}

// Drill is the result of a drill.
type Drill struct {
	Repository string
	Time       time.Time
	Verdict    catalog.Verdict
	Finding    string
}

// Log holds how a cluster's log is archived.
type Log struct {
	Problem  string        // why nothing is stored; "": none
	Known    bool          // Lag is known
	Lag      time.Duration // the age of the oldest request that is not stored; while it is unknown, Facts.Since counts
	Spool    int64         // bytes that wait for the store
	SpoolMax int64         // 0: no spool
	Diverged string        // how the members' key spaces differ; "": no difference is known
	Gap      string        // the reason of a gap that no backup has come after; "": none, or an earlier agent recorded it
}

// Limits holds the thresholds of conditions. Zero fields mean the defaults, which the comments name.
type Limits struct {
	Failures    int           // failed backups in a row; 3
	Shrunk      float64       // fraction of the usual size or number of keys, 0 to 1; 0.5
	Proven      time.Duration // age of the last verify or drill; 7 days
	DrillLate   time.Duration // delay of a drill; 6 hours
	Lag         time.Duration // age of the oldest request that is not stored; 5 minutes
	Spool       float64       // fraction of the spool in use, 0 to 1; 0.8
	Certificate time.Duration // remaining validity of a certificate; 14 days
	Accept      []Name        // conditions that are accepted, and never reported
}

const (
	certificateCritical = 48 * time.Hour   // remaining validity
	lagCritical         = 6                // times Lag
	logStopped          = 10 * time.Minute // how long after the end of the log a good backup was taken
)

// orDefaults returns l with the defaults in place of zero fields.
func (l Limits) orDefaults() Limits {
	l.Failures = cmp.Or(l.Failures, 3)
	l.Shrunk = cmp.Or(l.Shrunk, 0.5)
	l.Proven = cmp.Or(l.Proven, 7*24*time.Hour)
	l.DrillLate = cmp.Or(l.DrillLate, 6*time.Hour)
	l.Lag = cmp.Or(l.Lag, 5*time.Minute)
	l.Spool = cmp.Or(l.Spool, 0.8)
	l.Certificate = cmp.Or(l.Certificate, 14*24*time.Hour)
	return l
}
