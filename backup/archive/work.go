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

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// work is one turn: the time for which this agent holds the lease, and extends the repository's log.
type work struct {
	*archiver
	source source

	next          segment.Header    // of the next segment; only Lineage, Seq, Previous, Reason and After are set
	stored        segment.End       // the end of the stored log
	lastMark      segment.Mark      // the newest mark in a segment that was cut
	unindexed     []catalog.Segment // stored segments that the next index will contain
	indexFailure  string            // why the last index was not stored; "": it was
	indexFailedAt time.Time         // when that was; zero: it was stored

	pending     pending
	unconfirmed confirmations // marks whose positions are not stored yet
	version     string        // of the member's server
	heardAt     time.Time     // when the leader last confirmed a mark, or the turn began
	markedAt    time.Time     // when the last mark was taken
	takenAt     time.Time     // when requests were last taken, or the turn began
	emptiedAt   time.Time     // no request that was not taken yet is older, unless pending is full or the source broke
	hasTaken    bool          // requests were taken, so the source continues the repository's log
	// sourceErr is the error after which the source returns no more; nil while there is none. Pending requests can still be stored.
	sourceErr error
	queue     []queued   // cut and not stored yet, in order; the first one is being stored
	storing   chan error // nil while no segment is being stored
	// storeFailure is a string: why the current segment is not stored yet; "" while the first try runs.
	storeFailure atomic.Value
	spoolFailed  time.Time          // when writing to the spool last failed; zero: never
	resumedAt    time.Time          // when resumeSource last tried to resume a broken source; zero: never
	hashing      chan hashed        // nil while no hash is requested
	based        atomic.Bool        // this part of the log has a base backup
	baseFailure  atomic.Value       // string: why the last snapshot for a base failed; unset: none did
	stop         context.CancelFunc // cancels the storing of segments; nil until follow sets it
}

// Errors that end a turn and not the agent.
var (
	// errTaken means that the repository's next segment is not from this turn.
	errTaken = errors.New("another agent has stored this part of the log")
	// errForked means that a leader confirmed an end of the log before the stored one.
	errForked = errors.New("the cluster's history was rolled back")
)

// step takes committed requests, and sends them when they are due. A segment that is being stored may outlive
// ctx, so it has its own context, storeCtx.
func (w *work) step(ctx, storeCtx context.Context) error {
	began := time.Now()
	err := w.take(ctx)
	if err != nil {
		return err
	}
	due := w.due()
	asked, err := w.requestMark(ctx, due)
	err = w.suppressErr(err)
	if err != nil {
		return err
	}
	if asked { // the answer may show that more requests are committed
		err := w.take(ctx)
		if err != nil {
			return err
		}
	}
	if !w.isFull() {
		w.emptiedAt = began
	}
	if len(w.pending.requests) > 0 || len(w.queue) > 0 {
		w.busyAt.Store(began.UnixNano())
	}
	if due { // what has become due since then gets a mark first
		err := w.send(storeCtx)
		if err != nil {
			return err
		}
	}
	w.takeHash()
	w.confirm()
	w.publishStatus()
	err = w.stuck()
	if err != nil && w.storeProblem() != "" { // the turn continues, for the reason in suppressErr
		w.sourceErr, err = err, nil
	}
	return err
}

// due reports whether the pending requests must be cut into a segment now. While a segment is being stored, requests accumulate,
// because fewer segments are better. Exception: the next one can go to the spool.
func (w *work) due() bool {
	now := time.Now()
	switch {
	case len(w.pending.requests) == 0:
		return w.needsEmptySegment()
	case len(w.queue) == 0:
		return w.sourceErr != nil || w.pending.due(now, w.config.Flush, w.config.SegmentSize)
	}
	return (len(w.queue) > 1 || w.storeProblem() != "") && w.canSpool() &&
		w.pending.due(now, max(w.config.Flush, spoolEvery), w.config.SegmentSize)
}

// needsEmptySegment reports whether an empty segment must be stored to advance the position: the member has begun a new WAL file,
// and the entries since the stored end need no segment (logins, for example). Without an empty segment they would look like a gap
// once the old file is purged and the agent restarts.
func (w *work) needsEmptySegment() bool {
	marked := slices.ContainsFunc(w.pending.marks, func(m segment.Mark) bool {
		return m.Position+1 >= w.pending.first && m.Position <= w.pending.last
	})
	return len(w.queue) == 0 && marked && w.pending.last > w.stored.Position && w.source.headroom().Files > 1
}

// storeProblem returns why the current segment is not stored yet, "" while the first try runs.
func (w *work) storeProblem() string {
	why, _ := w.storeFailure.Load().(string)
	return why
}

// markEvery is the longest interval between marks.
const markEvery = time.Second

// requestMark asks the member for a mark before each segment is sent, so that the segment ends with a mark and the catalog knows
// its newest point precisely; otherwise at least once per markEvery. If neither is due and no requests are pending, it calls
// listen instead. asked reports whether it asked the member.
func (w *work) requestMark(ctx context.Context, due bool) (asked bool, err error) {
	switch {
	case w.sourceErr != nil:
		return false, nil
	case due || time.Since(w.markedAt) >= markEvery:
		w.hash(ctx)
		return true, w.mark(ctx)
	case len(w.pending.requests) > 0:
		return false, nil
	}
	return w.source.listen(ctx)
}

// stuck returns an error if the source has not returned entries that the member committed long ago. On disk, a record with a damaged
// length looks like a record that is still being written.
func (w *work) stuck() error {
	limit := w.patience.at(w.pending.last, max(2*w.config.Lease, w.source.normalDelay()))
	if len(w.unconfirmed) == 0 || w.sourceErr != nil || w.isFull() ||
		time.Since(w.takenAt) < limit || time.Since(w.source.lastDataAt()) < limit {
		return nil
	}
	first := w.unconfirmed[0]
	if first.Position > w.pending.last && time.Since(first.NotAfter) > limit {
		w.patience.extend(w.pending.last, limit)
		return fmt.Errorf("the member has committed position %d, and %s ends at %d: the log may be damaged there, or slow",
			first.Position, w.source.name(), w.pending.last)
	}
	return nil
}

// patience bounds the wait for progress after a position. A retry makes a slow member restart the transfer of a large change. So
// each wait at the same position is twice as long as the one before: with equal waits, a change that takes longer would never
// arrive.
type patience struct {
	position uint64
	next     time.Duration // the next wait at position
}

// maxPatienceFactor is the maximum wait as a multiple of the first one.
const maxPatienceFactor = 64

// at returns the wait at position. first is the wait at a new position.
func (p *patience) at(position uint64, first time.Duration) time.Duration {
	if p.position != position {
		return first
	}
	return min(max(p.next, first), maxPatienceFactor*first)
}

// extend doubles the wait at position after a wait of waited.
func (p *patience) extend(position uint64, waited time.Duration) {
	p.position, p.next = position, 2*waited
}

// isFull reports whether no more may be taken until a segment is stored.
func (w *work) isFull() bool { return w.pending.bytes >= heldSegments*w.config.SegmentSize }

// mark takes a mark from the source, and adds it to pending and unconfirmed.
func (w *work) mark(ctx context.Context) error {
	mark, err := w.source.mark(ctx)
	if err != nil {
		return err
	}
	w.version = w.source.version()
	w.heardAt = time.Now()
	w.markedAt = w.heardAt
	if mark.Position < w.stored.Position { // a leader has just confirmed that the log ends before the stored position
		w.sourceErr = fmt.Errorf("%w: the committed log ends at position %d, before the stored position %d", errForked, mark.Position, w.stored.Position)
		return nil
	}
	w.pending.mark(mark)
	w.unconfirmed.add(mark)
	return nil
}

// suppressErr returns err only once the member has been without a leader for the length of a lease: another agent should then take
// over. Until then it returns nil, and the entries that the log records as committed are still archived. While the store is
// unreachable it always returns nil: no other agent could begin a turn, and changes that this one does not spool may be compacted.
func (w *work) suppressErr(err error) error {
	if err == nil || time.Since(w.heardAt) < w.config.Lease || w.storeProblem() != "" {
		return nil
	}
	return err
}

// hash requests the member's HashKV every Config.HashEvery. Hashing a large key space takes minutes, so archiving does not wait for
// the result. The result is kept only if it arrives before the segment that contains its position is cut.
func (w *work) hash(ctx context.Context) {
	w.takeHash()
	if w.config.HashEvery == 0 || w.hashing != nil || time.Since(w.lastHash) < w.config.HashEvery {
		return
	}
	w.lastHash = time.Now()
	hash, id := w.source.hasher(), w.source.clusterID()
	w.startHash(ctx, func(ctx context.Context) (segment.Hash, error) { return hash(ctx, w.hashLimit(ctx, id)) })
}

// startHash requests one hash concurrently with archiving.
func (w *work) startHash(ctx context.Context, hash func(context.Context) (segment.Hash, error)) {
	hashing := make(chan hashed, 1)
	w.hashing = hashing
	go func() {
		h, err := hash(ctx)
		hashing <- hashed{Hash: h, err: err}
	}()
}

// hashed is the result of a requested hash. After an error, archiving continues without the hash.
type hashed struct {
	segment.Hash
	err error
}

// why returns the reason for err without numbers that change each time.
func (h hashed) why() string {
	if errors.Is(h.err, cluster.ErrTooLarge) {
		return cluster.ErrTooLarge.Error()
	}
	return h.err.Error()
}

// takeHash handles the result of a requested hash if it has arrived.
func (w *work) takeHash() {
	select {
	case h := <-w.hashing:
		w.hashing = nil
		switch {
		case h.err != nil && h.why() != w.unhashed:
			w.unhashed = h.why()
			w.note("no HashKV for the log: %v", h.err)
		case h.err != nil: // reported already
		case h.Position+1 < w.pending.first:
			w.note("no HashKV for the log this time: segments past position %d were stored before the member answered", h.Position)
		default:
			w.pending.hash(h.Hash)
		}
	default:
	}
}

// take moves committed requests from the source to pending, until it has caught up or pending is full.
func (w *work) take(ctx context.Context) error {
	for w.sourceErr == nil && !w.isFull() {
		batch, err := w.source.take(ctx, w.config.SegmentSize)
		if errors.Is(err, fault.Refused) {
			return err
		}
		w.sourceErr = err
		if err != nil || batch.Last == 0 {
			return nil
		}
		w.pending.add(batch, w.emptiedAt)
		w.hasTaken, w.takenAt = true, time.Now()
	}
	return w.source.hold() // the source might go unread for a long time
}

// heldSegments is the number of segments' worth of requests that may wait in memory while the store is slow.
const heldSegments = 4

// confirm updates Status.ConfirmedAt. Positions after the stored end that carry no requests need no segment, so they
// count as stored.
//
// A log without a base backup restores nothing, so confirm does nothing before there is one.
func (w *work) confirm() {
	if !w.based.Load() {
		return
	}
	position := w.stored.Position
	if len(w.queue) == 0 && len(w.pending.requests) == 0 {
		position = max(position, w.pending.last)
	}
	at, ok := w.unconfirmed.upTo(position)
	if ok {
		w.board.set(func(s *Status) { s.ConfirmedAt = at })
	}
}

func (w *work) publishStatus() {
	problem := cmp.Or(w.storeProblem(), w.baseProblem())
	w.board.set(func(s *Status) {
		s.State, s.Problem, s.Holder = Working, problem, ""
		if problem != "" {
			s.State = Waiting
		}
		s.Based = w.based.Load()
		if s.Based {
			s.GapReason = ""
		}
		s.Lineage, s.Durable = w.next.Lineage, w.stored.Position
		s.PendingRequests, s.PendingBytes = len(w.pending.requests), int64(w.pending.bytes)
		s.Headroom = w.source.headroom()
		s.Spool = w.spool.status()
	})
}

// baseProblem returns why the log has no base backup yet, "" if it has one. Without it the log restores nothing, so the agent must
// not look healthy.
func (w *work) baseProblem() string {
	if w.based.Load() {
		return ""
	}
	why, _ := w.baseFailure.Load().(string)
	return "the log has no backup to continue from: " + cmp.Or(why, "one is being taken, or waits to be taken")
}

// newLineage returns 32 random hex digits.
func newLineage() string {
	var id [16]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}
