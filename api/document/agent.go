package document

import (
	"time"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// AgentState is the activity of an archiving agent.
type AgentState string

// The states of an agent.
const (
	AgentStarting AgentState = "starting"
	AgentStandby  AgentState = "standby" // another agent, Holder, archives the log
	AgentWorking  AgentState = "working"
	AgentWaiting  AgentState = "waiting" // Problem names the member, leader, store or backup that is missing
)

// Agent is the status of an archiving agent, alone or within a service. Pending requests and bytes are those of now; all other counts
// begin at 0 when the agent starts. On standby it has no position and no lineage: the working agent has them.
type Agent struct {
	State AgentState `json:"state"`
	// Problem is the missing store, member, leader or backup that it waits for, with the reason; absent if it waits for nothing.
	Problem string `json:"problem,omitempty"`

	Cluster string         `json:"cluster"`
	Source  segment.Source `json:"source"`
	Member  string         `json:"member,omitempty"`  // the member that it reads or watches: id in hex
	Holder  string         `json:"holder,omitempty"`  // on standby: the agent that archives the log
	Lineage string         `json:"lineage,omitempty"` // the lineage that it writes
	// Based is set if a backup exists from which the log continues. Without one the log restores nothing, and State is "waiting".
	Based bool `json:"based"`

	// Changed describes why the newest backups seem to belong to another history, although dr has not restored the cluster; absent if they
	// do not seem to.
	Changed string `json:"changed,omitempty"`
	// Diverged describes how the members' key spaces differed when this was first seen, in words; absent while no difference is known:
	// docs/runbooks/MembersDiverged.md.
	Diverged string `json:"diverged,omitempty"`

	Durable     uint64    `json:"durable"`              // last stored position; 0: none yet
	DurableAt   time.Time `json:"durableAt,omitzero"`   // when it was stored
	ConfirmedAt time.Time `json:"confirmedAt,omitzero"` // all writes acknowledged before this moment are stored

	PendingRequests int       `json:"pendingRequests"`  // read, and not stored yet
	PendingBytes    int64     `json:"pendingBytes"`     // read, and not stored yet
	StoredSegments  int64     `json:"storedSegments"`   // by this agent
	StoredRequests  int64     `json:"storedRequests"`   // by this agent
	StoredBytes     int64     `json:"storedBytes"`      // by this agent
	Gaps            int64     `json:"gaps"`             // the gaps that it recorded
	LastGap         time.Time `json:"lastGap,omitzero"` // when the last of them was recorded
	StoredByOthers  int64     `json:"storedByOthers"`   // segments that another agent had stored before
	Failures        int64     `json:"failures"`         // attempts to store that failed

	// Headroom is how soon etcd's purge would cause a gap if the agent stopped now; only with source "wal". On standby only
	// Headroom.Files and Headroom.UnlinkedBytes are set: the agent keeps files open until the working agent has stored them.
	Headroom Headroom `json:"headroom"`
	Spool    Spool    `json:"spool"` // the local buffer of segments that wait for an unreachable store; only with source "watch"
}

// Headroom is how soon etcd's purge of its log files would cause a gap if the agent stopped now.
type Headroom struct {
	Files         int     `json:"files"`         // files of the member's log that are not stored in full
	UnlinkedBytes int64   `json:"unlinkedBytes"` // bytes of files that etcd has purged and that exist only because the agent has them open
	Purges        bool    `json:"purges"`        // whether etcd purges its log at all (--max-wals)
	Seconds       float64 `json:"seconds"`       // until the oldest file that is not stored in full is purged, at the current write rate
}

// Spool is the local buffer of segments that wait for the store.
type Spool struct {
	Segments int   `json:"segments"` // segments in it
	Bytes    int64 `json:"bytes"`    // their size
	Max      int64 `json:"max"`      // the most bytes that it may contain; 0: there is no spool
}

// ArchiveStatus is the answer of dr archive at /status. At /metrics it has the same numbers for Prometheus: docs/metrics.md. At /healthz it
// answers 503 while State is "waiting", and while Diverged or Changed is present.
type ArchiveStatus struct {
	Agent
	// RPOSeconds is how much would be lost if only the repository survived: the time since ConfirmedAt. It is null while the agent has
	// confirmed no moment, such as before the first backup or on standby.
	RPOSeconds *float64 `json:"rpoSeconds"`
}

// NewArchiveStatus returns the document of an agent's status at the time now.
func NewArchiveStatus(a Agent, now time.Time) ArchiveStatus {
	d := ArchiveStatus{Agent: a}
	rpo, ok := a.RPO(now)
	if ok {
		seconds := rpo.Seconds()
		d.RPOSeconds = &seconds
	}
	return d
}

// RPO returns how much would be lost if only the repository survived: the time since ConfirmedAt, never negative. ok is false
// while the agent has confirmed no moment.
func (a Agent) RPO(now time.Time) (lost time.Duration, ok bool) {
	if a.ConfirmedAt.IsZero() {
		return 0, false
	}
	return max(0, now.Sub(a.ConfirmedAt)), true
}
