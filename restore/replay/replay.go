// Package replay applies the log to a database, outside of any server, with etcd's own code: its applier, key space,
// lessor, auth store and alarms. What comes out is what the member had that wrote the log.
//
// A log from a watch has no requests but what became of them: it goes to the key space and the lessor alone, and what a
// watch does not see stays as it was.
//
// It fails closed. A request that it does not know whole is an error and never left out, and marks on the way are
// compared with what the member said of itself.
package replay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Log is what is applied.
type Log struct {
	Source  segment.Source // says what its positions are, and so where in it a database is
	Records iter.Seq2[segment.Record, error]
}

// Stop says where to end; a zero field does not stop.
type Stop struct {
	Revision int64  // right after the request that made this revision of the key space
	Position uint64 // after the last request at or below this position
}

// At is a place that a database has reached.
type At struct {
	Position        uint64 // of the last request that is in the database; in a log from Watch it is the Revision
	Term            uint64 // its raft term; 0: not known, as in a snapshot of etcd 3.4 and in a log from Watch
	Revision        int64  // of the key space
	CompactRevision int64  // -1: never compacted
	Keys            int64  // in the key space; known only after an Apply without an error
	Kubernetes      bool   // some of them are Kubernetes', below /registry/; as Keys
	Requests        int    // applied by this run, those included that the member refused and so does the replay
	GuessedLeases   int    // granted by this run for 60 s, since a put was on them and no grant had come. Only from Watch
	Marked          uint64 // position of the last RevisionMark that held; 0: none
	Proven          int64  // revision of the last HashMark that held; 0: none
	Stopped         bool   // where Stop says; false: the records ended before anything proved that they reach it
}

var (
	// ErrMismatch says that the database is not what the member had: see MismatchError.
	ErrMismatch = errors.New("the replay differs from the member's report")
	// ErrRequest says that a request is none that this version knows whole.
	ErrRequest = errors.New("this version of dr does not know the request")
	// ErrForeign says that records are out of order or do not continue the history that the database belongs to.
	ErrForeign = errors.New("the log does not fit the database")
	// ErrPast says that the database is already past the place to stop at: an older one is needed.
	ErrPast = errors.New("the database is already past that point")
)

// MismatchError is a mark that does not hold. The database has gone on to it by then: the last state that is known to be
// right is reached by replaying anew, from the base to Last.Position.
type MismatchError struct {
	Position uint64 // of the mark
	Hashed   int64  // the revision whose hash differs; 0: it is the revision itself that does
	Absent   bool   // it is no mark but a change, which deletes a key that is not there
	Want     int64  // the revision, or the hash, that the member had
	Got      int64  // the replay's
	Last     At     // as of the last mark that held; its Marked is 0 if none did
}

func (e *MismatchError) Error() string {
	what := fmt.Sprintf("revision is %d, the member's was %d", e.Got, e.Want)
	if e.Hashed > 0 {
		what = fmt.Sprintf("HashKV at revision %d is %08x, the member's was %08x", e.Hashed, e.Got, e.Want)
	}
	if e.Absent {
		what = "a key is deleted that is not there"
	}
	proven := "no mark before it held"
	if e.Last.Marked > 0 {
		proven = fmt.Sprintf("the last mark that held is at position %d, revision %d", e.Last.Position, e.Last.Revision)
	}
	return fmt.Sprintf("%v at position %d: %s; %s", ErrMismatch, e.Position, what, proven)
}

// Is makes it match ErrMismatch.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// RecordError is a record that cannot be applied to any database: this version does not know it (ErrRequest), or it does not
// follow the record before it (ErrForeign).
type RecordError struct {
	After    uint64 // the position up to which everything was applied, and behind which the record comes
	Revision int64  // of the key space there
	err      error
}

func (e *RecordError) Error() string { return e.err.Error() }
func (e *RecordError) Unwrap() error { return e.err }

// Apply brings the database in the file db up to the log's records, or to where stop says. Records that are in it already
// are skipped: how far it is stands in it, and is written together with what the requests change, so that a run that was
// cut short is simply repeated. Nothing is synced: that is the caller's, when all is done.
//
// The records are read on a goroutine of their own, ahead of what is applied; Apply returns when that one has. Memory
// grows with the database's keys, not with the log, and is free again afterwards.
//
// bbolt and etcd's packages panic on a database that is damaged, in part on goroutines of theirs: Apply belongs into a
// process that may die. After such a panic the file stays open.
func Apply(ctx context.Context, db string, log Log, stop Stop, report storage.Report) (At, error) {
	return ApplyWatched(ctx, db, log, stop, nil, report)
}

// ApplyWatched is Apply, and tells w, unless that is nil, of what changes its keys. A request that cannot touch them
// costs a comparison of keys; for the others the revision that they made is read back.
func ApplyWatched(
	ctx context.Context, db string, log Log, stop Stop, w *Watch, report storage.Report,
) (At, error) {
	if log.Source != segment.WAL && log.Source != segment.Watch {
		return At{}, fmt.Errorf("%w: a log from %q", ErrRequest, log.Source)
	}
	member, err := open(db, log.Source)
	if err != nil {
		return At{}, err
	}
	r := &run{member: member, source: log.Source, stop: stop, watch: w, report: report}
	r.begin()
	// A trace keeps every step that it is told of, but within one.
	r.quiet.StepWithFunction(func() { err = r.all(ctx, log.Records) }, "replay")
	if err == nil {
		r.at.Keys, r.at.Kubernetes, err = CountKeys(ctx, member.kv)
	}
	return r.at, errors.Join(err, member.close(), Forget(filepath.Dir(db)))
}

// pace is how often a run reports itself.
const pace = 250 * time.Millisecond

// run is one call of Apply.
type run struct {
	*member
	source segment.Source
	stop   Stop
	watch  *Watch // nil: nobody watches
	report storage.Report

	at    At
	held  At        // as of the last mark that held
	base  uint64    // what was in the database to begin with
	seen  place     // of the last request that was read
	marks marks     // whose positions are not reached yet
	said  time.Time // when progress was last reported
}

// place is a request's in the log.
type place struct{ position, term uint64 }

func (r *run) begin() {
	r.at.Position, r.at.Term = r.place()
	r.at.Revision, r.at.CompactRevision = r.revisions()
	if r.source == segment.Watch {
		r.at.Position, r.at.Term = uint64(r.at.Revision), 0
	}
	r.base, r.held = r.at.Position, r.at
}

func (r *run) all(ctx context.Context, records iter.Seq2[segment.Record, error]) error {
	if err := r.alreadyThere(); err != nil || r.at.Stopped {
		return err
	}
	for batch, err := range ahead(ctx, records, r.base) {
		for i := range batch {
			if err := r.record(&batch[i]); err != nil || r.at.Stopped {
				return err
			}
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		r.progress()
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("replay up to position %d: %w", r.at.Position, err)
	}
	if err := r.endsWhole(); err != nil {
		return err
	}
	return r.settle(lastPosition)
}

// alreadyThere compares the database with where to stop before anything is read.
func (r *run) alreadyThere() error {
	behind := r.stop.Revision != 0 && r.at.Revision > r.stop.Revision ||
		r.stop.Position != 0 && r.at.Position > r.stop.Position
	if behind {
		return fmt.Errorf("replay to revision %d, position %d: %w: it is at revision %d, position %d; take an older backup",
			r.stop.Revision, r.stop.Position, ErrPast, r.at.Revision, r.at.Position)
	}
	r.at.Stopped = r.arrived()
	return nil
}

// arrived reports whether no further request may be applied.
func (r *run) arrived() bool {
	return r.stop.Revision != 0 && r.at.Revision >= r.stop.Revision ||
		r.stop.Position != 0 && r.at.Position >= r.stop.Position
}

func (r *run) record(d *decoded) error {
	if err := r.ofSource(d); err != nil {
		return err
	}
	if d.Kind != segment.Request && d.Kind != segment.Change {
		return r.badRecord(r.at.Position, r.marks.add(d, r.base, r.seen.position))
	}
	if err := r.inOrder(place{d.Position, d.Term}); err != nil {
		return err
	}
	if d.Position <= r.base {
		return nil
	}
	if r.stop.Position != 0 && d.Position > r.stop.Position {
		r.at.Stopped = true
		return r.settle(r.stop.Position)
	}
	if err := r.settle(d.Position - 1); err != nil {
		return err
	}
	if d.err != nil {
		return r.badRecord(d.Position-1, d.err)
	}
	return r.request(d)
}

// badRecord returns err, if it is one, as that of a record behind a position.
func (r *run) badRecord(after uint64, err error) error {
	if err == nil {
		return nil
	}
	return &RecordError{After: after, Revision: r.at.Revision, err: err}
}

// ofSource refuses what a log from this source cannot have.
func (r *run) ofSource(d *decoded) error {
	of := segment.WAL
	switch d.Kind {
	case segment.Request:
	case segment.Change, segment.CompactionMark:
		of = segment.Watch
	default:
		return nil
	}
	if of != r.source {
		return r.badRecord(r.at.Position, fmt.Errorf("%w: a log from %s has a record of one from %s, at position %d",
			ErrForeign, r.source, of, d.Position))
	}
	return nil
}

// inOrder holds a request against the one before it, and against the last that is in the database.
func (r *run) inOrder(next place) error {
	if r.source == segment.Watch {
		return r.nextRevision(next.position)
	}
	switch {
	case next.position <= r.seen.position:
		return r.badRecord(r.at.Position, fmt.Errorf("%w: the request at position %d comes after the one at %d",
			ErrForeign, next.position, r.seen.position))
	case next.term < r.seen.term:
		return r.badRecord(r.at.Position, fmt.Errorf("%w: the request at position %d is of term %d, the one before it, at %d, of term %d",
			ErrForeign, next.position, next.term, r.seen.position, r.seen.term))
	case next.position == r.base && r.at.Term != 0 && next.term != r.at.Term:
		return fmt.Errorf("%w: the request at position %d is of term %d in the log, and of term %d in the database",
			ErrForeign, next.position, next.term, r.at.Term)
	case next.position > r.base && next.term < r.at.Term:
		return fmt.Errorf("%w: the request at position %d is of term %d, the database is of term %d, at position %d",
			ErrForeign, next.position, next.term, r.at.Term, r.at.Position)
	}
	r.seen = next
	return nil
}

func (r *run) request(d *decoded) error {
	if d.request.LeaseGrant != nil && r.source == segment.Watch { // its revision is still to come
		return r.grant(d.request.LeaseGrant)
	}
	if err := r.applyWatched(place{d.Position, d.Term}, d.request); err != nil {
		return fmt.Errorf("apply the request at position %d: %w", d.Position, err)
	}
	r.at.Position, r.at.Term = d.Position, d.Term
	r.at.Revision, r.at.CompactRevision = r.revisions()
	r.at.Requests++
	if r.source == segment.Watch && r.at.Revision != int64(d.Position) {
		return r.differs(d.Position, int64(d.Position))
	}
	if r.at.Stopped = r.arrived(); r.at.Stopped {
		return r.settle(d.Position)
	}
	return nil
}

func (r *run) progress() {
	if now := time.Now(); now.Sub(r.said) >= pace {
		r.said = now
		r.report.Say(storage.Event{
			Stage: "replay", Message: fmt.Sprintf("at position %d, revision %d", r.at.Position, r.at.Revision),
		})
	}
}
