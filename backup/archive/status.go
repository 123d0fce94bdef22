package archive

import (
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// State is the state of an agent.
type State string

// The states of an agent.
const (
	Starting State = "starting"
	Standby  State = "standby" // another agent works; when it stops, this agent takes over
	Working  State = "working"
	Waiting  State = "waiting" // for a member, a leader, a store or the log's base backup; Problem names it
)

// Status is an agent's report about itself. It is a value: a copy may be kept.
type Status struct {
	State   State
	Problem string // why the agent waits; "": it does not

	Cluster string
	Source  segment.Source
	Member  string // id, in hex, of the member whose log is read, or which is watched
	Holder  string // the working agent while this one is on standby
	Lineage string
	Based   bool // the log has a backup to continue from; without one it restores nothing

	// Changed describes how the newest backups differ from the cluster's own history, if no restore by dr explains it; or "".
	Changed string
	// Diverged describes how the members' key spaces differ, as first found; "" while no difference is known.
	Diverged string

	Durable     uint64    // last stored position, 0: none yet
	DurableAt   time.Time // when it was stored
	ConfirmedAt time.Time // all writes acknowledged before this time are stored; zero: not known

	PendingRequests int // read and not stored yet
	PendingBytes    int64
	StoredSegments  int64 // since the agent started
	StoredRequests  int64
	StoredBytes     int64
	Gaps            int64     // recorded since the agent started
	LastGap         time.Time // when the last of them was recorded; the next stored segment names it
	GapReason       string    // of the last of them; "" once a backup was taken after it
	StoredByOthers  int64     // segments that this agent cut, but another agent had already stored
	Failures        int64     // of the store, since the agent started

	Headroom Headroom // source wal
	Spool    Spool    // source watch
}

// Headroom describes how soon etcd's purge would cause a gap if this agent stopped.
type Headroom struct {
	Files         int     // of the member's log that are not completely stored
	UnlinkedBytes int64   // of files that etcd has purged and that exist only because the agent has them open
	Purges        bool    // etcd purges its log at all (--max-wals)
	Seconds       float64 // until the oldest file that is not completely stored is purged, at the current write rate; only if Purges
}

// addEnd counts a stored segment that is the new end of the log.
func (s *Status) addEnd(one catalog.Segment, now time.Time) {
	s.Durable, s.DurableAt = one.Last, now.UTC()
	s.addSegment(one)
}

// addSegment counts a stored segment without moving the end of the log.
func (s *Status) addSegment(one catalog.Segment) {
	s.StoredSegments++
	s.StoredRequests += int64(one.Requests)
	s.StoredBytes += one.Size
}

// recordGap counts a gap that was recorded at now.
func (s *Status) recordGap(now time.Time, why string) {
	s.Gaps, s.LastGap, s.GapReason = s.Gaps+1, now.UTC(), why
}

// standBy sets the state Standby. If another agent is the holder, it clears the fields that only a working agent knows.
func (s *Status) standBy(holder, problem string, held Headroom) {
	s.State, s.Problem, s.Holder = Standby, problem, holder
	s.Headroom = Headroom{Files: held.Files, UnlinkedBytes: held.UnlinkedBytes}
	if holder != "" {
		s.Changed, s.Diverged, s.GapReason = "", "", ""
		s.Lineage, s.Based, s.Durable, s.DurableAt, s.ConfirmedAt = "", false, 0, time.Time{}, time.Time{}
		s.PendingRequests, s.PendingBytes = 0, 0
	}
}

// RPO returns how much would be lost if only the repository survived: the time since the last moment before which all
// acknowledged writes are known to be stored. ok is false if no such moment is known.
func (s Status) RPO(now time.Time) (lost time.Duration, ok bool) {
	if s.ConfirmedAt.IsZero() {
		return 0, false
	}
	return max(0, now.Sub(s.ConfirmedAt)), true
}

// board holds the status, and passes each change to observe.
type board struct {
	mu      sync.Mutex
	status  Status
	observe func(Status) // nil: not called
}

func (b *board) set(change func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.status)
	if b.observe != nil {
		b.observe(b.status)
	}
}

// confirmations are the marks whose positions are not stored yet, oldest first.
type confirmations []segment.Mark

// upTo removes the marks up to position, and returns NotBefore of the newest of them. ok is false if there is none.
func (c *confirmations) upTo(position uint64) (at time.Time, ok bool) {
	for len(*c) > 0 && (*c)[0].Position <= position {
		at, ok = (*c)[0].NotBefore, true
		*c = (*c)[1:]
	}
	return at, ok
}

// add adds a mark. Beyond maxMarks it drops some in between: while the store is unreachable, about one mark per second arrives. It keeps
// the oldest, which shows since when the source lags.
func (c *confirmations) add(m segment.Mark) { *c = thin(append(*c, m)) }
