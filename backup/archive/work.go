package archive

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// work is one turn with the lease: it goes on where the repository ends.
type work struct {
	*archiver
	source source

	next      segment.Header // of the next segment, as far as it is known: lineage, seq, previous, reason, after
	stored    segment.End    // everything up to here is
	lastMark  segment.Mark   // the newest that was cut
	unindexed []catalog.Segment

	pending  pending
	awaiting confirmations
	version  string    // of the member's server
	heardAt  time.Time // when the leader last confirmed a mark, or the turn began
	markedAt time.Time // when there was the last mark
	tookAt   time.Time // when something of the log was last taken, or the turn began
	took     bool      // something of this log: it continues the repository's
	// cannotGoOn is why the log yields nothing more; what is pending can still be stored.
	cannotGoOn error
	queue      []waiting    // what was cut and is not stored yet, in order; the first one is on its way
	storing    chan error   // nil while nothing is on its way
	away       atomic.Value // string: why what is on its way is not stored yet; "" if it may be any moment
	// spoolFailed is when the spool last took nothing.
	spoolFailed time.Time
	triedAgain  time.Time    // when what had broken off was last taken up again
	hashing     chan hashed  // nil while no hash is asked for
	based       atomic.Bool  // there is a backup that this part of the log goes on from
	noBase      atomic.Value // string: why there is none yet
	stop        context.CancelFunc
}

// Errors that end a turn and not the agent.
var (
	errTaken = errors.New("another agent has stored this part of the log")
	// errForked: a leader has confirmed that there is less than is stored.
	errForked = errors.New("the cluster's history went back")
)

// step is what happens at each tick: take what the member has committed, send what is due. What is on its way outlives
// ctx a little, so it has a context of its own.
func (w *work) step(ctx, storing context.Context) error {
	if err := w.take(ctx); err != nil {
		return err
	}
	asked, err := w.hear(ctx)
	if err := w.patient(err); err != nil {
		return err
	}
	if asked { // what the member has committed since
		if err := w.take(ctx); err != nil {
			return err
		}
	}
	if w.due() {
		if err := w.send(storing); err != nil {
			return err
		}
	}
	w.takeHash()
	w.confirm()
	w.tell()
	err = w.stuck()
	if err != nil && w.isAway() != "" { // as in patient
		w.cannotGoOn, err = err, nil
	}
	return err
}

// due says whether what is pending must be cut now. While something is on its way it waits, unless there is a spool for
// it: the fewer segments the better then.
func (w *work) due() bool {
	now := time.Now()
	switch {
	case len(w.pending.requests) == 0:
		return w.fillsFiles()
	case len(w.queue) == 0:
		return w.cannotGoOn != nil || w.pending.due(now, w.config.Flush, w.config.SegmentSize)
	}
	return (len(w.queue) > 1 || w.isAway() != "") && w.canSpool() &&
		w.pending.due(now, max(w.config.Flush, spoolEvery), w.config.SegmentSize)
}

// fillsFiles reports whether the member's log has begun another file with what needs no segment, such as logins. It is stored
// all the same then, with its marks: else it would count as lost when the file is purged and the agent starts anew.
func (w *work) fillsFiles() bool {
	marked := slices.ContainsFunc(w.pending.marks, func(m segment.Mark) bool {
		return m.Position+1 >= w.pending.first && m.Position <= w.pending.last
	})
	return len(w.queue) == 0 && marked && w.pending.last > w.stored.Position && w.source.headroom().Files > 1
}

// isAway is why what is on its way is not stored yet, "" if it may be any moment.
func (w *work) isAway() string {
	why, _ := w.away.Load().(string)
	return why
}

// markEvery is how often a time is tied to a position, if nothing is stored.
const markEvery = time.Second

// hear asks the member where it is: before a segment is sent, so that it ends with a mark and the catalog knows its
// newest point well; once a second; and when something new is there that the log itself does not say is committed, which
// it may not do for minutes on an idle cluster. asked is false where there was nothing to ask.
func (w *work) hear(ctx context.Context) (asked bool, err error) {
	switch {
	case w.cannotGoOn != nil:
		return false, nil
	case w.due() || time.Since(w.markedAt) >= markEvery:
		w.hash(ctx)
		return true, w.mark(ctx)
	case len(w.pending.requests) > 0:
		return false, nil
	}
	return w.source.listen(ctx)
}

// stuck is an error if the member has long committed what its log does not show: on a disk a length that is damaged looks
// like a record that is still being written.
func (w *work) stuck() error {
	patience := w.patience.at(w.pending.last, max(2*w.config.Lease, w.source.slow()))
	if len(w.awaiting) == 0 || w.cannotGoOn != nil || w.isFull() ||
		time.Since(w.tookAt) < patience || time.Since(w.source.heardAt()) < patience {
		return nil
	}
	if first := w.awaiting[0]; first.Position > w.pending.last && time.Since(first.NotAfter) > patience {
		w.patience.over(w.pending.last, patience)
		return fmt.Errorf("the member has committed position %d, and %s ends at %d: it may be damaged there, or slow",
			first.Position, w.source.name(), w.pending.last)
	}
	return nil
}

// patience is how long the log may show nothing behind one position. Asking anew has a member that is slow begin anew with
// what it was about to tell, so each time that was for nothing at the same position the next wait is twice as long: else
// a change that takes longer than that would never come.
type patience struct {
	position uint64
	next     time.Duration // there
}

// longestPatience is how many times as long as the first wait another one is at most.
const longestPatience = 64

func (p *patience) at(position uint64, first time.Duration) time.Duration {
	if p.position != position {
		return first
	}
	return min(max(p.next, first), longestPatience*first)
}

func (p *patience) over(position uint64, waited time.Duration) {
	p.position, p.next = position, 2*waited
}

// isFull: no more is taken until something is stored.
func (w *work) isFull() bool { return w.pending.bytes >= heldSegments*w.config.SegmentSize }

func (w *work) mark(ctx context.Context) error {
	mark, err := w.source.mark(ctx)
	if err != nil {
		return err
	}
	w.version = w.source.version()
	w.heardAt = time.Now()
	w.markedAt = w.heardAt
	if mark.Position < w.stored.Position { // a leader has just confirmed that there is no more: history went back
		w.cannotGoOn = fmt.Errorf("%w: all that is committed ends at position %d, stored is %d", errForked, mark.Position, w.stored.Position)
		return nil
	}
	w.pending.mark(mark)
	w.awaiting.add(mark)
	return nil
}

// patient swallows err until the member has been without a leader for as long as a lease lasts: then it is another
// agent's turn. Until then what its log says of itself is archived all the same. While the store is away nobody could
// begin a turn, and what this one does not spool may be compacted.
func (w *work) patient(err error) error {
	if err == nil || time.Since(w.heardAt) < w.config.Lease || w.isAway() != "" {
		return nil
	}
	return err
}

// hash has the member asked for its HashKV now and then. A large key space takes minutes, so nothing waits for the answer; it
// is kept if it comes before the segment with its position is cut.
func (w *work) hash(ctx context.Context) {
	w.takeHash()
	if w.config.HashEvery == 0 || w.hashing != nil || time.Since(w.lastHash) < w.config.HashEvery {
		return
	}
	w.lastHash = time.Now()
	w.ask(ctx, w.source.hasher())
}

// ask asks for one hash next to the archiving.
func (w *work) ask(ctx context.Context, hash func(context.Context) (segment.Hash, error)) {
	hashing := make(chan hashed, 1)
	w.hashing = hashing
	go func() {
		h, err := hash(ctx)
		hashing <- hashed{h, err}
	}()
}

// hashed is an answer to hash. A member that does not give one is no reason to stop.
type hashed struct {
	segment.Hash
	err error
}

// takeHash takes the answer if it is there.
func (w *work) takeHash() {
	select {
	case h := <-w.hashing:
		w.hashing = nil
		switch {
		case h.err != nil && h.err.Error() != w.unhashed:
			w.unhashed = h.err.Error()
			w.note("no HashKV for the log: %v", h.err)
		case h.err != nil:
		case h.Position+1 < w.pending.first:
			w.note("no HashKV for the log this time: the log went past position %d before the member answered", h.Position)
		default:
			w.pending.hash(h.Hash)
		}
	default:
	}
}

// take moves what is committed from the log to pending, until it has caught up or holds as much as it may.
func (w *work) take(ctx context.Context) error {
	for w.cannotGoOn == nil && !w.isFull() {
		batch, err := w.source.take(ctx, w.config.SegmentSize)
		if errors.Is(err, fault.Refused) {
			return err
		}
		if w.cannotGoOn = err; err != nil || batch.Last == 0 {
			return nil
		}
		w.pending.add(batch, time.Now())
		w.took, w.tookAt = true, time.Now()
	}
	return w.source.hold() // the store is behind
}

// heldSegments is how many segments' requests may wait in memory while the store is behind.
const heldSegments = 4

// confirm finds out since when everything is stored. What lies behind the stored end and holds no request needs no
// segment.
//
// Without a backup before it the log restores nothing, so until there is one nothing is safe.
func (w *work) confirm() {
	if !w.based.Load() {
		return
	}
	position := w.stored.Position
	if len(w.queue) == 0 && len(w.pending.requests) == 0 {
		position = max(position, w.pending.last)
	}
	if at, ok := w.awaiting.upTo(position); ok {
		w.board.set(func(s *Status) { s.ConfirmedAt = at })
	}
}

func (w *work) tell() {
	problem := cmp.Or(w.isAway(), w.missesBase())
	w.board.set(func(s *Status) {
		s.State, s.Problem, s.Holder = Working, problem, ""
		if problem != "" {
			s.State = Waiting
		}
		s.Based = w.based.Load()
		s.Lineage, s.Durable = w.next.Lineage, w.stored.Position
		s.PendingRequests, s.PendingBytes = len(w.pending.requests), int64(w.pending.bytes)
		s.Headroom = w.source.headroom()
		s.Spool = w.spool.status()
	})
}

// missesBase returns why there is no backup yet that the log goes on from, "" if there is one. Without it what is stored
// restores nothing, so the agent must not look healthy.
func (w *work) missesBase() string {
	if w.based.Load() {
		return ""
	}
	why, _ := w.noBase.Load().(string)
	return "the log has no backup to go on from: " + cmp.Or(why, "one is being taken, or waits for its turn")
}

// newLineage is 32 random hex digits.
func newLineage() string {
	var id [16]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}
