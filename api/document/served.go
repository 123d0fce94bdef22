package document

import (
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/suspension"
)

// ServeStatus is the document at /status and at /api/v1/clusters.
type ServeStatus struct {
	Config   ServeConfig     `json:"config"`             // the configuration in effect
	Clusters []ServedCluster `json:"clusters"`           // by name at /status, the worst first at /api/v1/clusters
	Restores []ServedRestore `json:"restores,omitempty"` // of dr operator: all EtcdRestores, by namespace and name
}

// ServedRestore is an EtcdRestore, as its status shows it.
type ServedRestore struct {
	Namespace   string    `json:"namespace"`                 // of the EtcdRestore and the StatefulSet
	Name        string    `json:"name"`                      // of the EtcdRestore
	StatefulSet string    `json:"statefulSet"`               // the one that gets the data
	Cluster     string    `json:"cluster,omitempty"`         // whose backups are restored; absent: not known yet
	Phase       string    `json:"phase"`                     // docs/kubernetes.md#phases
	Ended       bool      `json:"ended"`                     // it is in one of the phases in which a restore ends
	Since       time.Time `json:"since,omitzero"`            // when the phase began; absent: not known yet
	MembersDone string    `json:"membersDone,omitempty"`     // how many of the members have completed the step, such as 2/3
	Message     string    `json:"message,omitempty"`         // what it waits for, or why it was refused or has gone back
	Downtime    float64   `json:"downtimeSeconds,omitempty"` // from the beginning of fencing until all members served; absent: they have not yet
}

// ServeConfig identifies the configuration in effect.
type ServeConfig struct {
	File    string    `json:"file"`              // its path; of dr operator: EtcdBackups
	Since   time.Time `json:"since"`             // when it was read; of dr operator: when it started
	Refused string    `json:"refused,omitempty"` // why the current content of the file is not in effect
}

// State is the activity of a service for one cluster.
type State string

// The states of a cluster.
const (
	StateStarting  State = "starting"  // its repositories have not been read yet
	StateIdle      State = "idle"      // no backup is due until Next
	StateQueued    State = "queued"    // a backup is due, but the permitted number of others are running
	StateRunning   State = "running"   // a backup is being taken
	StateStandby   State = "standby"   // a backup is due, and another service, Holder, takes it
	StateFailing   State = "failing"   // Problem is the reason, such as an unusable configuration; the next attempt is at Next
	StateSuspended State = "suspended" // nothing is started
)

// ServedCluster is the state of one cluster in a service.
type ServedCluster struct {
	Cluster  string          `json:"cluster"`
	State    State           `json:"state"`
	Problem  string          `json:"problem,omitempty"` // why the last attempt failed, or why the configuration cannot be used
	Failures int             `json:"failures"`          // attempts in a row that failed
	Reason   string          `json:"reason,omitempty"`  // why a backup is due or being taken
	Holder   string          `json:"holder,omitempty"`  // on standby: the service that takes the backup
	Last     *condition.Last `json:"last,omitempty"`    // the newest known backup; absent: none is known
	Next     time.Time       `json:"next,omitzero"`     // when the next backup is due, or the next attempt
	// NextDrill is when the next drill is due, or the next attempt; absent if none is scheduled, and while there is no backup.
	NextDrill time.Time `json:"nextDrill,omitzero"`
	// Unpruned is why old backups could not be removed; absent if they were. Backups continue.
	Unpruned string `json:"unpruned,omitempty"`

	Suspension *SuspendedBy `json:"suspension,omitempty"` // the order of dr suspend or of the API; absent if there is none
	// Jobs are the jobs of this service: for each kind and repository the running one, and the last one that ended.
	Jobs   []Outcome `json:"jobs"`
	Counts []Count   `json:"counts"` // how many jobs have ended since the service started
	// Archive is the agent, if this service archives the log. If only the repository survived, the writes since Archive.ConfirmedAt would
	// be lost.
	Archive    *Agent                `json:"archive,omitempty"`
	Standings  []condition.Standing  `json:"standings"`  // one for each repository, as of the last survey
	Conditions []condition.Condition `json:"conditions"` // the worst first
}

// RecoveryPoint returns the newest moment that a repository contains, zero if none is known: the moment that this service's own archiving
// has confirmed, the end of the newest window, or the start of the newest good backup. It ignores moments in the future, which come
// from wrong clocks: with them nothing would ever seem lost.
func (c ServedCluster) RecoveryPoint(now time.Time) (newest time.Time) {
	take := func(at time.Time) {
		if at.After(newest) && !catalog.IsFuture(at, now) {
			newest = at
		}
	}
	if c.Archive != nil && c.Archive.State != AgentStandby {
		take(c.Archive.ConfirmedAt)
	}
	for _, standing := range c.Standings {
		if standing.Window != nil {
			take(standing.Window.To.Time)
		}
		if standing.Good != nil {
			take(standing.Good.Started)
		}
	}
	return newest
}

// Counted returns how many jobs have ended with a verdict.
func (c ServedCluster) Counted(job Job, verdict Verdict) int64 {
	for _, count := range c.Counts {
		if count.Job == job && count.Verdict == verdict {
			return count.N
		}
	}
	return 0
}

// Job is a kind of work.
type Job string

// The jobs.
const (
	JobBackup Job = "backup"
	JobPrune  Job = "prune"
	JobDrill  Job = "drill"
	JobCopy   Job = "copy" // of backups that one repository lacks and another has; only the service starts it
)

// Outcome is a job that waits for its turn or runs, or the result of one that has ended.
type Outcome struct {
	Job        Job        `json:"job"`
	Repository string     `json:"repository,omitempty"` // absent for a backup, which goes into all
	Reason     string     `json:"reason"`               // why it was started
	Began      time.Time  `json:"began,omitzero"`       // absent: it waits, as one of "queued" in GET /api/v1/jobs
	Ended      time.Time  `json:"ended,omitzero"`       // absent: it waits or runs
	Verdict    Verdict    `json:"verdict,omitempty"`    // absent: it waits or runs
	Backup     catalog.ID `json:"backup,omitempty"`     // the one that was taken or drilled
	Message    string     `json:"message,omitempty"`    // why it failed or was not run
	RTO        float64    `json:"rtoSeconds,omitempty"` // of a drill: the longest time until a server served the restored data
}

// Count is the number of jobs that ended with one verdict.
type Count struct {
	Job     Job     `json:"job"`
	Verdict Verdict `json:"verdict"`
	N       int64   `json:"n"` // how many
}

// Verdict is how a job ended. A job that was not run did not succeed.
type Verdict string

// The verdicts.
const (
	Succeeded Verdict = "succeeded"
	Failed    Verdict = "failed"
	NotRun    Verdict = "not run"
)

// SuspendedBy is an order to start nothing. It is stored in the repositories and so holds for all services.
type SuspendedBy struct {
	Since  time.Time `json:"since"`  // when it was ordered
	By     string    `json:"by"`     // the person or program that ordered it
	Reason string    `json:"reason"` // free text
}

// Suspension is the document of dr suspend and dr resume: the latest suspension or resumption, as stored.
type Suspension = suspension.Suspension
