package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// State is the state of a cluster's backups.
type State string

// The states of a cluster.
const (
	Starting  State = "starting"  // the repositories were not read yet
	Idle      State = "idle"      // no backup is due until Next
	Queued    State = "queued"    // due, and waiting for its turn
	Running   State = "running"   // a backup runs
	Standby   State = "standby"   // due, and another service, Holder, has the lease
	Failing   State = "failing"   // because of Problem; the next try is at Next
	Suspended State = "suspended" // no job is started
)

// Status is the status of one cluster. It is a value: a copy may be kept.
type Status struct {
	Cluster  string
	State    State
	Problem  string    // why the last try failed or, for a faulty cluster, its fault; "": none
	Failures int       // failed tries in a row
	Reason   string    // why a backup is due or runs
	Holder   string    // of the lease, on standby
	Last     *Last     // the newest backup; nil: none is known
	Next     time.Time // when the next backup is due or tried; zero: unknown, or none is scheduled
	// NextDrill is when the next drill is due or tried; zero if none is scheduled, and while there is no backup.
	NextDrill time.Time
	// Unpruned is the error of the last pruning. Backups continue.
	Unpruned string

	Suspension *Suspension           // by a person; nil: none. A suspension by the configuration is not included
	Jobs       []Outcome             // the running and the last ended outcome of each job and repository, by this service
	Counts     []Count               // of all jobs that this service has ended
	Archive    *archive.Status       // of the cluster's log; nil: this service does not archive it
	Standings  []Standing            // of each repository, at the last survey
	Conditions []condition.Condition // the worst first
}

// starting returns the Status of a cluster whose state is not known yet.
func starting(cluster string) Status {
	return Status{
		Cluster: cluster, State: Starting, Jobs: []Outcome{}, Counts: []Count{}, Standings: []Standing{}, Conditions: []condition.Condition{},
	}
}

// Job is a kind of work.
type Job string

// The jobs.
const (
	JobBackup Job = "backup"
	JobPrune  Job = "prune"
	JobDrill  Job = "drill"
	JobCopy   Job = "copy" // of backups that a repository lacks; it cannot be requested
)

// Outcome is the outcome of a job that runs or has ended.
type Outcome struct {
	Job        Job
	Repository string     // of a job in a single one; or ""
	Reason     string     // why the job is due or requested
	Began      time.Time  // when it began; a job that waits for its turn has no Outcome
	Ended      time.Time  // zero: it runs
	Verdict    Verdict    // "": it runs
	Backup     catalog.ID // the backup that was taken or drilled; "": none
	Message    string     // why it failed or was not run
	RTO        float64    // of a drill, in seconds; 0: no server served the restored data
}

// Count is the number of jobs with one verdict.
type Count struct {
	Job     Job
	Verdict Verdict
	N       int64
}

// Verdict is the result of a job.
type Verdict string

// The verdicts.
const (
	Succeeded Verdict = "succeeded"
	Failed    Verdict = "failed"
	NotRun    Verdict = "not run"
)

// Suspension is an order to start no job. It is stored in the repositories, so all services obey it.
type Suspension struct {
	Since  time.Time
	By     string // the person
	Reason string // free text
}

// The standing of a cluster in a repository, as package condition defines it.
type (
	Standing = condition.Standing
	Good     = condition.Good
	Last     = condition.Last
)

// Status returns the status of each cluster, by name. It may be called while Run runs.
func (s *Service) Status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []Status{}
	for name := range s.workers {
		all = append(all, s.statusOf(name))
	}
	for name := range s.faulty {
		all = append(all, s.statusOf(name))
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return all
}

// StatusOf returns the status of one cluster. Its error matches ErrUnknown. It may be called while Run runs.
func (s *Service) StatusOf(cluster string) (Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.workers[cluster] == nil && s.faulty[cluster] == nil {
		return Status{}, unknown(cluster)
	}
	return s.statusOf(cluster), nil
}

// statusOf returns the status of a cluster that has a worker or is faulty. The caller holds s.mu.
func (s *Service) statusOf(cluster string) Status {
	w := s.workers[cluster]
	if w == nil {
		return s.faulty[cluster].observer.board.get()
	}
	status := w.board.get()
	status.Archive = s.archiveOf(cluster)
	return status
}

// archiveOf returns how s archives the cluster's log, nil if it does not. The caller holds s.mu.
func (s *Service) archiveOf(cluster string) *archive.Status {
	a := s.archivings[cluster]
	if a == nil || a.stopped {
		return nil
	}
	return a.get()
}
