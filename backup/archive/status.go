package archive

import (
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// State is what an agent is doing.
type State string

// The states of an agent.
const (
	Starting State = "starting"
	Standby  State = "standby" // another agent works; this one takes over when that one stops
	Working  State = "working"
	Waiting  State = "waiting" // for a member, a leader, a store or the backup that the log goes on from; Problem names it
)

// Status is what an agent says of itself. It is a value: a copy may be kept.
type Status struct {
	State   State
	Problem string

	Cluster string
	Source  segment.Source
	Member  string // whose log it reads, or whom it watches: id in hex
	Holder  string // who works, where this agent stands by
	Lineage string
	Based   bool // there is a backup that the log goes on from; without one it restores nothing

	// Changed describes that the newest backups are of another history than the cluster's own, which no restore by dr began.
	Changed string
	// Diverged describes how the members' key spaces differ, since that was first seen; "" while no difference is known.
	Diverged string

	Durable     uint64    // last position that is stored, 0: none yet
	DurableAt   time.Time // when it was stored
	ConfirmedAt time.Time // all that was acknowledged before is stored: see RPO

	PendingRequests int // read, and not stored yet
	PendingBytes    int64
	StoredSegments  int64 // since the agent started
	StoredRequests  int64
	StoredBytes     int64
	Gaps            int64     // recorded since the agent started
	LastGap         time.Time // when the last of them was recorded
	Taken           int64     // segments that another agent had stored before
	Failures        int64     // of the store, since the agent started

	Headroom Headroom // source wal
	Spool    Spool    // source watch
}

// Headroom is how far the archive is from losing something to etcd's purge, were this agent to stop.
type Headroom struct {
	Files         int     // of the member's log that are not stored in full
	UnlinkedBytes int64   // of files that etcd has purged and that live only because they are open
	Purges        bool    // etcd purges its log at all (--max-wals)
	Seconds       float64 // until the oldest file that is not stored in full is purged, at the present pace
}

// stored counts a segment that is in the repository now.
func (s *Status) stored(one catalog.Segment, now time.Time) {
	s.Durable, s.DurableAt = one.Last, now.UTC()
	s.counted(one)
}

// counted counts a segment without moving the end of the log.
func (s *Status) counted(one catalog.Segment) {
	s.StoredSegments++
	s.StoredRequests += int64(one.Requests)
	s.StoredBytes += one.Size
}

// recordGap counts a gap that is recorded now.
func (s *Status) recordGap(now time.Time) { s.Gaps, s.LastGap = s.Gaps+1, now.UTC() }

// standBy drops what only an agent that works knows. Without a holder no other agent knows it better.
func (s *Status) standBy(holder, problem string, held Headroom) {
	s.State, s.Problem, s.Holder = Standby, problem, holder
	s.Headroom = Headroom{Files: held.Files, UnlinkedBytes: held.UnlinkedBytes}
	if holder != "" {
		s.Changed, s.Diverged = "", ""
		s.Lineage, s.Based, s.Durable, s.DurableAt, s.ConfirmedAt = "", false, 0, time.Time{}, time.Time{}
		s.PendingRequests, s.PendingBytes = 0, 0
	}
}

// RPO is how much would be lost if everything but the repository were gone now: the time since the last moment of which
// it is known that all a client had been told was written is stored. ok is false while that is not known of any moment.
func (s Status) RPO(now time.Time) (lost time.Duration, ok bool) {
	if s.ConfirmedAt.IsZero() {
		return 0, false
	}
	return max(0, now.Sub(s.ConfirmedAt)), true
}

// board holds the status, and tells of each change.
type board struct {
	mu     sync.Mutex
	status Status
	tell   func(Status)
}

func (b *board) set(change func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.status)
	if b.tell != nil {
		b.tell(b.status)
	}
}

// confirmations are the marks whose positions are not stored yet, oldest first.
type confirmations []segment.Mark

// upTo takes out the marks up to position, and says of which moment the newest of them is.
func (c *confirmations) upTo(position uint64) (at time.Time, ok bool) {
	for len(*c) > 0 && (*c)[0].Position <= position {
		at, ok = (*c)[0].NotBefore, true
		*c = (*c)[1:]
	}
	return at, ok
}

// add keeps what is needed to be right at the next upTo: under a store that is away, one a second would pile up.
func (c *confirmations) add(m segment.Mark) {
	if len(*c) >= maxMarks {
		*c = (*c)[1:]
	}
	*c = append(*c, m)
}
