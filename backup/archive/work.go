package archive

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/wal"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// work is one turn with the lease: it goes on where the repository ends.
type work struct {
	*archiver
	member *member
	log    *wal.Log

	next      segment.Header // of the next segment, as far as it is known: lineage, seq, previous, reason, after
	stored    segment.End    // everything up to here is
	lastMark  segment.Mark   // the newest that is stored
	unindexed []repository.Segment

	pending  pending
	awaiting confirmations
	version  string    // of the member's server
	heardAt  time.Time // when the leader last confirmed a mark, or the turn began
	markedAt time.Time // when there was the last mark
	began    time.Time
	took     bool // something of this log: it continues the repository's
	// cannotGoOn is why the log yields nothing more; what is pending can still be stored.
	cannotGoOn error
	storing    chan outcome // nil while nothing is on its way
	away       atomic.Value // string: why what is on its way is not stored yet; "" if it may be any moment
	stop       context.CancelFunc
}

// errTaken ends a turn and not the agent.
var errTaken = errors.New("another agent has stored this part of the log")

// step is what happens at each tick: take what the member has committed, send what is due. What is on its way outlives
// ctx a little, so it has a context of its own.
func (w *work) step(ctx, storing context.Context) error {
	if err := w.take(); err != nil {
		return err
	}
	asked, err := w.hear(ctx)
	if err := w.patient(err); err != nil {
		return err
	}
	if asked { // what the member has committed since
		if err := w.take(); err != nil {
			return err
		}
	}
	if w.due() {
		w.send(storing)
	}
	w.confirm()
	w.tell()
	return w.stuck()
}

func (w *work) due() bool {
	return w.storing == nil && w.pending.due(time.Now(), w.config.Flush, w.config.SegmentSize)
}

// markEvery is how often a time is tied to a position, if nothing is stored.
const markEvery = time.Second

// hear asks the member where it is: before a segment is sent, so that it ends with a mark and the catalog knows its
// newest point well; once a second; and when something new is there that the log itself does not say is committed, which
// it may not do for minutes on an idle cluster. asked is false where there was nothing to ask.
func (w *work) hear(ctx context.Context) (asked bool, err error) {
	if w.due() || time.Since(w.markedAt) >= markEvery {
		w.hash(ctx)
		return true, w.mark(ctx)
	}
	if len(w.pending.requests) > 0 || w.log.Backlog().Held == 0 {
		return false, nil
	}
	word, err := w.member.ask(ctx)
	if err != nil {
		return true, err
	}
	w.log.Confirm(word.applied, word.term)
	return true, nil
}

// stuck is an error if the member has long committed what its log on the disk does not show: a length that is damaged
// looks like a record that is still being written.
func (w *work) stuck() error {
	if len(w.awaiting) == 0 || w.cannotGoOn != nil || w.pending.bytes >= heldSegments*w.config.SegmentSize {
		return nil
	}
	if first := w.awaiting[0]; first.Position > w.pending.last && time.Since(first.NotAfter) > 2*w.config.Lease {
		return fmt.Errorf("the member has committed position %d, and its log in %s ends at %d: it may be damaged there",
			first.Position, w.config.DataDir, w.pending.last)
	}
	return nil
}

func (w *work) mark(ctx context.Context) error {
	mark, word, err := w.member.mark(ctx)
	if err != nil {
		return err
	}
	w.version = word.version
	w.log.Confirm(word.applied, word.term)
	w.heardAt = time.Now()
	w.markedAt = w.heardAt
	if mark.Position < w.stored.Position { // a leader has just confirmed that there is no more: history went back
		w.cannotGoOn = fmt.Errorf("%w: all that is committed ends at position %d, stored is %d", wal.ErrForked, mark.Position, w.stored.Position)
		return nil
	}
	w.pending.mark(mark)
	w.awaiting.add(mark)
	return nil
}

// patient swallows err until the member has been without a leader for as long as a lease lasts: then it is another
// agent's turn. Until then what its log says of itself is archived all the same.
func (w *work) patient(err error) error {
	if err == nil || time.Since(w.heardAt) < w.config.Lease {
		return nil
	}
	return err
}

// hash asks for HashKV now and then. A member that cannot say is no reason to stop.
func (w *work) hash(ctx context.Context) {
	if w.config.HashEvery == 0 || time.Since(w.lastHash) < w.config.HashEvery {
		return
	}
	w.lastHash = time.Now()
	h, err := w.member.hash(ctx)
	if err != nil {
		w.warn("no HashKV for the log: %v", err)
		return
	}
	w.pending.hashes = append(w.pending.hashes, h)
}

// take moves committed requests from the log to pending, until it has caught up or holds as much as it may.
func (w *work) take() error {
	for w.cannotGoOn == nil && w.pending.bytes < heldSegments*w.config.SegmentSize {
		more, readErr := w.log.Read()
		if err := w.takeBatches(); err != nil {
			return err
		}
		w.cannotGoOn = cmp.Or(w.cannotGoOn, readErr)
		if !more {
			return nil
		}
	}
	return w.log.Hold() // the store is behind: keep what etcd may purge meanwhile
}

// takeBatches takes what is committed of what was read.
func (w *work) takeBatches() error {
	for w.cannotGoOn == nil {
		batch, err := w.log.Take(w.config.SegmentSize)
		if w.cannotGoOn = err; err != nil || batch.Last == 0 {
			return nil
		}
		if err := w.refusePasswords(batch); err != nil {
			return err
		}
		w.pending.add(batch, time.Now())
		w.took = true
	}
	return nil
}

// heldSegments is how many segments' requests may wait in memory while the store is behind.
const heldSegments = 4

// refusePasswords keeps passwords, which servers before 3.5 write into their log as they are, out of a repository that
// anybody can read.
func (w *work) refusePasswords(b wal.Batch) error {
	if w.config.To.Seal().Encryption != "" {
		return nil
	}
	for _, r := range b.Requests {
		if wal.HoldsPassword(r.Data) {
			return fmt.Errorf("%w: the log of this etcd %s holds users' passwords in plain text: archive it with --recipient", ErrRefused, w.version)
		}
	}
	return nil
}

// confirm finds out since when everything is stored. What lies behind the stored end and holds no request needs no
// segment.
func (w *work) confirm() {
	position := w.stored.Position
	if w.storing == nil && len(w.pending.requests) == 0 {
		position = max(position, w.pending.last)
	}
	if at, ok := w.awaiting.upTo(position); ok {
		w.board.set(func(s *Status) { s.ConfirmedAt = at })
	}
}

func (w *work) tell() {
	backlog := w.log.Backlog()
	away, _ := w.away.Load().(string)
	w.board.set(func(s *Status) {
		s.State, s.Problem, s.Holder = Working, away, ""
		if away != "" {
			s.State = Waiting
		}
		s.Lineage, s.Durable = w.next.Lineage, w.stored.Position
		s.PendingRequests, s.PendingBytes = len(w.pending.requests), int64(w.pending.bytes)
		s.Headroom = w.headroom(backlog)
	})
}

// headroom guesses from the member's pace since this turn began.
func (w *work) headroom(b wal.Backlog) Headroom {
	h := Headroom{Files: b.Files, UnlinkedBytes: b.UnlinkedBytes}
	left, purges := b.UntilPurge(w.config.MaxWALs)
	pace := float64(b.Read) / time.Since(w.began).Seconds()
	if h.Purges = purges; purges && pace > 0 {
		h.Seconds = float64(left) / pace
	}
	return h
}

// newLineage is 32 random hex digits.
func newLineage() string {
	var id [16]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}
