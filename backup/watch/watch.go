// Package watch reads the changes of a cluster's key space, as a client sees them. Follow and From return a Stream.
//
//	member ── answers, in fragments ──► events ── by revision, whole ──► Take ──► changes, with the leases that they need
//
// A position is a revision. Every revision is present, in order, with all of its changes. Users, roles, leases without
// keys and alarms are missing, because a watch does not show them.
package watch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// ErrForked means that the key space is not the one that was watched before: its revision is lower, or the last
// revision has other changes.
var ErrForked = errors.New("the key space has another history")

// GapError means that the revisions From to To, both inclusive, are lost: they were compacted. To is the cluster's compact
// revision. It still exists, but counts as lost, because servers before 3.4.34 and 3.5.16 have dropped its deletions.
type GapError struct {
	From, To int64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("the cluster has compacted the revisions %d to %d before they could be read: start over with a snapshot", e.From, e.To)
}

// JumpError means that the member has omitted the revisions From to To, both inclusive, and has not compacted them.
// Servers before 3.4.36 and 3.5.18 may do so; a new watch gets them.
type JumpError struct {
	From, To int64
}

func (e *JumpError) Error() string {
	return fmt.Sprintf("the watch has omitted the revisions %d to %d", e.From, e.To)
}

// maxReady limits the bytes of changes that wait for Take, apart from the newest change. At the limit the stream is not
// read: the member then keeps further changes in its key space, and this process does not need memory for them.
const maxReady = 8 << 20

// Stream is one watch. Its methods are for one goroutine at a time.
type Stream struct {
	cancel  context.CancelFunc
	reading sync.WaitGroup
	leases  *Leases
	room    *semaphore.Weighted // for ready
	full    chan struct{}       // receives a value when put waits for room
	arrived chan struct{}       // receives a value when ready, reached or err changes

	anchor segment.End // the stored revision that the next answer must repeat; zero: none, or it was repeated
	whole  assembly    // like anchor, used only by the reading goroutine

	mu      sync.Mutex
	heard   time.Time // when the last answer arrived; zero: none has
	ready   []change  // waiting for Take
	reached int64     // complete up to this revision
	err     error     // of the reading goroutine, after its end
}

// change is one complete revision.
type change struct {
	revision int64
	data     []byte // an InternalRaftRequest
	leases   []int64
}

// Follow returns a Stream that continues after the revision named by after. If the key space has another one in its
// place, or has not reached it, Follow or Take returns ErrForked. If the revision is compacted, Take returns *GapError.
func Follow(ctx context.Context, s *cluster.Server, leases *Leases, after segment.End) (*Stream, error) {
	now, err := s.Revision(ctx)
	if err != nil {
		return nil, err
	}
	if now < int64(after.Position) {
		return nil, fmt.Errorf("%w: its revision is %d, but was %d before", ErrForked, now, after.Position)
	}
	return open(ctx, s, leases, start{anchor: after, from: int64(after.Position)})
}

// From returns a Stream that begins with a revision, without an expectation about the one before.
func From(ctx context.Context, s *cluster.Server, leases *Leases, revision int64) (*Stream, error) {
	return open(ctx, s, leases, start{from: revision})
}

// start is the point at which a Stream begins.
type start struct {
	anchor segment.End // the stored revision that the watch must repeat first; zero: none
	from   int64       // the first revision to watch; with an anchor, its revision
}

func open(ctx context.Context, server *cluster.Server, leases *Leases, at start) (*Stream, error) {
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx)) // Close ends it
	detach := context.AfterFunc(ctx, cancel)                           // the end of ctx ends only the opening
	answers, err := server.Watch(watching, at.from)
	detach()
	if err != nil {
		cancel()
		return nil, err
	}
	s := &Stream{
		cancel: cancel, leases: leases, anchor: at.anchor, whole: assembly{next: at.from}, reached: at.from - 1,
		room: semaphore.NewWeighted(maxReady), full: make(chan struct{}, 1), arrived: make(chan struct{}, 1),
	}
	s.reading.Go(func() {
		defer answers.Close()
		err := s.read(watching, answers)
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		signal(s.arrived)
	})
	return s, nil
}

// Close ends the watch.
func (s *Stream) Close() {
	s.cancel()
	s.reading.Wait()
}

// Full returns a channel that receives a value when the stream waits for Take to make room.
func (s *Stream) Full() <-chan struct{} { return s.full }

// Heard returns when the member's last answer arrived, even if it was a part of a revision; the zero Time if none has.
func (s *Stream) Heard() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
}

// Reached waits until everything up to a revision has arrived. It returns early when patience is over, when ctx or the
// stream has ended, or when Take must make room first.
func (s *Stream) Reached(ctx context.Context, revision int64, patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		s.mu.Lock()
		done := s.reached >= revision || s.err != nil
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-s.arrived:
		case <-s.full:
			signal(s.full) // for the receiver of Full
			return
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Take returns revisions that have arrived and were not taken yet, of about maxBytes in total, but at least one revision.
// If there is none, it returns an empty batch, or the error that ended the stream: *GapError, *JumpError, ErrForked, or
// an error of the connection. After an error the caller must close the stream, because changes may be missing from it.
func (s *Stream) Take(ctx context.Context, maxBytes int) (segment.Batch, error) {
	changes, err := s.pop(maxBytes)
	if len(changes) == 0 {
		return segment.Batch{}, err
	}
	grants, err := s.leases.grantsFor(ctx, changes)
	if err != nil {
		return segment.Batch{}, err
	}
	b := segment.Batch{First: uint64(changes[0].revision)}
	for _, c := range changes {
		for _, id := range c.leases {
			grant, ok := grants.pop(id)
			if ok {
				b.Requests = append(b.Requests, record(c.revision, grant.data))
				b.GuessedLeases += grant.guesses()
			}
		}
		b.Requests = append(b.Requests, record(c.revision, c.data))
	}
	last := changes[len(changes)-1]
	b.Last, b.End = uint64(last.revision), last.end()
	return b, nil
}

func record(revision int64, data []byte) segment.Record {
	return segment.Record{Kind: segment.Change, Position: uint64(revision), Data: data}
}

func (c change) end() segment.End {
	digest := sha256.Sum256(c.data)
	return segment.End{Position: uint64(c.revision), Digest: hex.EncodeToString(digest[:])}
}

// pop removes and returns changes of about maxBytes from ready. If there is none, it returns s.err.
func (s *Stream) pop(maxBytes int) ([]change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, n := 0, 0
	for n < len(s.ready) && (n == 0 || size < maxBytes) {
		size += len(s.ready[n].data)
		s.room.Release(s.ready[n].weight())
		n++
	}
	if n == 0 {
		return nil, s.err
	}
	changes := s.ready[:n:n]
	s.ready = s.ready[n:]
	if len(s.ready) == 0 {
		s.ready = nil // releases the taken changes
	}
	return changes, nil
}

// weight returns the room that c needs: its data and a fixed part, at most the whole room.
func (c change) weight() int64 { return min(int64(len(c.data))+100, maxReady) }

// read reads answers until an error, which it returns.
func (s *Stream) read(ctx context.Context, answers *cluster.Watch) error {
	for {
		answer, err := answers.Recv()
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.heard = time.Now()
		s.mu.Unlock()
		err = s.endReason(answer)
		if err != nil {
			return err
		}
		changes, err := s.whole.add(answer)
		for _, c := range changes {
			err := s.put(ctx, c)
			if err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// endReason returns an error if the answer ends the watch. An anchor is already stored, so a gap begins after it.
func (s *Stream) endReason(a *pb.WatchResponse) error {
	switch next := s.whole.next; {
	case a.CompactRevision > 0 && s.anchor.Position > 0:
		return &GapError{From: next + 1, To: a.CompactRevision}
	case a.CompactRevision > 0:
		return &GapError{From: next, To: a.CompactRevision}
	case a.Canceled:
		return fmt.Errorf("the member ends the watch: %s", a.CancelReason)
	}
	return nil
}

// put makes a change available to Take, once there is room for it. If there is an anchor, the first change must be equal to
// it, and is dropped.
func (s *Stream) put(ctx context.Context, c change) error {
	if s.anchor.Position > 0 {
		if c.end() != s.anchor {
			return fmt.Errorf("%w: revision %d differs from the stored one", ErrForked, c.revision)
		}
		s.anchor = segment.End{}
		return nil
	}
	if !s.room.TryAcquire(c.weight()) {
		signal(s.full)
		err := s.room.Acquire(ctx, c.weight())
		if err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.ready = append(s.ready, c)
	s.reached = c.revision
	s.mu.Unlock()
	signal(s.arrived)
	return nil
}

// signal sends a value, unless one is waiting already.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}
