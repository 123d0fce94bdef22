// Package replay applies a log to a database without a server, and leaves the state of the member that wrote the log. An index of its own
// serves direct requests, which are most of a log; etcd's own applier and store serve all others. The backend, the lessor, the auth store and
// the alarms are etcd's.
//
// A log of source Watch contains changes instead of requests. They go to the key space and the lessor alone; everything that a
// watch does not see stays unchanged.
//
// Package replay fails closed: a request with any unknown part is an error and is never skipped, and the marks in the log are
// compared with the database on the way.
package replay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Log is the log to apply.
type Log struct {
	Source  segment.Source // determines the meaning of positions, and so the database's position
	Records iter.Seq2[segment.Record, error]
}

// Stop is the point at which a replay ends. A zero field does not end it.
type Stop struct {
	Revision int64  // right after the request that made this revision of the key space
	Position uint64 // after the last request at or below this position
}

// Options are the options of Apply.
type Options struct {
	Stop   Stop
	Watch  *Watch // receives the changes of its keys; nil: none
	Report storage.Report
}

// At describes the state that a database has reached.
type At struct {
	Position        uint64 // of the last request in the database; equals Revision in a log of source Watch
	Term            uint64 // its raft term; 0: unknown, as in a snapshot of etcd 3.4 and in a log of source Watch
	Revision        int64  // of the key space
	CompactRevision int64  // -1: never compacted
	Keys            int64  // in the key space; set only after an Apply without an error
	Kubernetes      bool   // whether some keys are below /registry/; set only after an Apply without an error
	Requests        int    // applied by this run, including those that both the member and the replay refused
	GuessedLeases   int    // granted by this run for 60 s, for puts on unknown leases; only with source Watch
	Marked          uint64 // position of the last RevisionMark that matched; 0: none
	Proven          int64  // revision of the last HashMark that matched; 0: none
	Stopped         bool   // reached Stop; false: the records ended before one showed that Stop was reached
	CorruptAt       uint64 // position of the request that raised the alarm CORRUPT; 0: none did, or it was disarmed later
	CorruptRevision int64  // of the key space at CorruptAt
}

var (
	// ErrMismatch matches a MismatchError: the database differs from the member's.
	ErrMismatch = errors.New("the replay differs from the member's report")
	// ErrRequest matches errors about a request that this version does not know completely.
	ErrRequest = errors.New("this version of dr does not know the request")
	// ErrForeign matches errors about records that are out of order or do not continue the history of the database.
	ErrForeign = errors.New("the log does not fit the database")
	// ErrPast matches the error for a database that is already past Stop: the caller needs an older one.
	ErrPast = errors.New("the database is already past that point")
)

// MismatchError reports a mark that does not match. The database then contains unverified changes: to get the last verified
// state, replay again from the base to Last.Position.
type MismatchError struct {
	Position uint64 // of the mark
	Hashed   int64  // the revision whose hash differs; 0: the revision itself differs
	Absent   bool   // true: no mark differs, but a change at Position deletes a key that does not exist
	Want     int64  // the member's revision or hash
	Got      int64  // the replay's revision or hash
	Last     At     // the state at the last RevisionMark that matched; its Marked is 0 if there was none
	// Disputed is the position of the last transaction after Last that the replay refused and other members may have applied,
	// because etcd before 3.7 has that fault (etcd #18667); 0: there is none.
	Disputed uint64
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
	all := fmt.Sprintf("%v at position %d: %s; %s", ErrMismatch, e.Position, what, proven)
	if e.Disputed > 0 {
		all += fmt.Sprintf("; the transaction at position %d reads a revision that its member did not have, and etcd before 3.7 then applies "+
			"the rest of it on the other members alone (etcd issue 18667), so that the members differ: compare them with "+
			"dr check --compare-members", e.Disputed)
	}
	return all
}

// Is reports whether target is ErrMismatch.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// RecordError reports a record that cannot be applied to any database: this version does not know it (ErrRequest), or it does
// not follow the record before it (ErrForeign).
type RecordError struct {
	After    uint64 // the position up to which everything was applied; the record comes after it
	Revision int64  // of the key space there
	err      error
}

func (e *RecordError) Error() string { return e.err.Error() }
func (e *RecordError) Unwrap() error { return e.err }

// Apply applies the log's records to the database in the file db, up to o.Stop or to the end. It skips records that the database
// already contains. The position is written in the same transactions as the changes, so that an interrupted run can simply be
// repeated. Apply does not sync the file; the caller must.
//
// Apply reads ahead on a goroutine of its own, which has ended when Apply returns. Its memory grows with the database's keys,
// not with the log, and is free again afterwards.
//
// A request that cannot change the keys of o.Watch costs one comparison. After any other request Apply reads the revision that
// the request made, and calls o.Watch.Tell for each change of a watched key.
//
// bbolt and etcd's packages panic on a damaged database, partly on goroutines of their own, so Apply must run in a process
// that may die. After such a panic the file stays open.
func Apply(ctx context.Context, db string, log Log, o Options) (At, error) {
	if log.Source != segment.WAL && log.Source != segment.Watch {
		return At{}, fmt.Errorf("%w: a log from %q", ErrRequest, log.Source)
	}
	member, err := open(db, log.Source)
	if err != nil {
		return At{}, err
	}
	at, err := member.replay(ctx, log, o)
	return at, errors.Join(err, Forget(filepath.Dir(db)))
}

// replay applies the log and closes the member.
func (m *member) replay(ctx context.Context, log Log, o Options) (At, error) {
	r := &run{member: m, source: log.Source, stop: o.Stop, watch: o.Watch, report: o.Report}
	m.auth.unknown = r.warnMixed
	r.begin()
	var err error
	// A trace stores every step except those within another step. One step around the whole replay keeps the trace small.
	r.quiet.StepWithFunction(func() { err = r.all(ctx, log.Records) }, "replay")
	if err == nil {
		r.at.Keys, r.at.Kubernetes, err = m.keys.count(ctx)
	}
	return r.at, errors.Join(err, m.close())
}

// pace is the shortest time between two progress reports.
const pace = 250 * time.Millisecond

// run is one call of Apply.
type run struct {
	*member
	source segment.Source
	stop   Stop
	watch  *Watch // nil: no keys are watched
	report storage.Report

	at    At
	held  At        // the state at the last RevisionMark that matched
	base  uint64    // the database's position at the start
	seen  place     // of the last request that was read
	marks marks     // not compared yet
	said  time.Time // when progress was last reported
}

// place is the position and the term of a request in the log.
type place struct{ position, term uint64 }

func (r *run) begin() {
	r.at.Position, r.at.Term = r.place()
	r.at.Revision, r.at.CompactRevision = r.keys.revisions()
	if r.source == segment.Watch {
		r.at.Position, r.at.Term = uint64(r.at.Revision), 0
	}
	r.base, r.held = r.at.Position, r.at
}

func (r *run) all(ctx context.Context, records iter.Seq2[segment.Record, error]) error {
	err := r.alreadyThere()
	if err != nil || r.at.Stopped {
		return err
	}
	for batch, err := range ahead(ctx, records, r.base) {
		for i := range batch {
			err := r.record(&batch[i])
			if err != nil || r.at.Stopped {
				return err
			}
		}
		err := errors.Join(err, ctx.Err())
		if err != nil {
			return err
		}
		r.progress()
	}
	err = ctx.Err()
	if err != nil {
		return fmt.Errorf("replay up to position %d: %w", r.at.Position, err)
	}
	err = r.endsWhole()
	if err != nil {
		return err
	}
	return r.compareMarks(lastPosition)
}

// alreadyThere sets Stopped if the database is at the stop before any record is read. It returns ErrPast if the database is past it.
func (r *run) alreadyThere() error {
	isPast := r.stop.Revision != 0 && r.at.Revision > r.stop.Revision ||
		r.stop.Position != 0 && r.at.Position > r.stop.Position
	if isPast {
		return fmt.Errorf("replay to revision %d, position %d: %w: it is at revision %d, position %d; take an older backup",
			r.stop.Revision, r.stop.Position, ErrPast, r.at.Revision, r.at.Position)
	}
	r.at.Stopped = r.arrived()
	return nil
}

// arrived reports whether the stop is reached, so that no further request may be applied.
func (r *run) arrived() bool {
	return r.stop.Revision != 0 && r.at.Revision >= r.stop.Revision ||
		r.stop.Position != 0 && r.at.Position >= r.stop.Position
}

// record checks one record. It keeps a mark for later, and applies a request that the database does not contain yet.
func (r *run) record(d *decoded) error {
	err := r.ofSource(d)
	if err != nil {
		return err
	}
	if d.Kind != segment.Request && d.Kind != segment.Change {
		return r.badRecord(r.at.Position, r.marks.add(d, r.base, r.seen.position))
	}
	err = r.inOrder(place{d.Position, d.Term})
	if err != nil {
		return err
	}
	if d.Position <= r.base {
		return nil
	}
	if r.stop.Position != 0 && d.Position > r.stop.Position {
		r.at.Stopped = true
		return r.compareMarks(r.stop.Position)
	}
	err = r.compareMarks(d.Position - 1)
	if err != nil {
		return err
	}
	if d.err != nil {
		return r.badRecord(d.Position-1, d.err)
	}
	return r.request(d)
}

// badRecord returns err as the error of a record after the position after; nil if err is nil.
func (r *run) badRecord(after uint64, err error) error {
	if err == nil {
		return nil
	}
	return &RecordError{After: after, Revision: r.at.Revision, err: err}
}

// ofSource refuses a record that a log of this source cannot contain.
func (r *run) ofSource(d *decoded) error {
	source := segment.WAL
	switch d.Kind {
	case segment.Request:
	case segment.Change, segment.CompactionMark:
		source = segment.Watch
	default:
		return nil
	}
	if source != r.source {
		return r.badRecord(r.at.Position, fmt.Errorf("%w: a log from %s has a record of one from %s, at position %d",
			ErrForeign, r.source, source, d.Position))
	}
	return nil
}

// inOrder checks that a request follows the one before it and fits the position of the database.
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
	if d.request.LeaseGrant != nil && r.source == segment.Watch { // the revision that needs the lease comes after it
		return r.grant(d.request.LeaseGrant)
	}
	err := r.applyWatched(place{d.Position, d.Term}, d.request)
	if err != nil {
		return fmt.Errorf("apply the request at position %d: %w", d.Position, err)
	}
	r.at.Position, r.at.Term = d.Position, d.Term
	r.at.Revision, r.at.CompactRevision = r.keys.revisions()
	r.at.Requests++
	if d.request.Alarm != nil {
		r.noteCorrupt()
	}
	if r.source == segment.Watch && r.at.Revision != int64(d.Position) {
		return r.differs(d.Position, int64(d.Position))
	}
	r.at.Stopped = r.arrived()
	if r.at.Stopped {
		return r.compareMarks(d.Position)
	}
	return nil
}

// noteCorrupt sets CorruptAt and CorruptRevision after a request about alarms.
func (r *run) noteCorrupt() {
	switch {
	case len(r.alarms.Get(pb.AlarmType_CORRUPT)) == 0:
		r.at.CorruptAt, r.at.CorruptRevision = 0, 0
	case r.at.CorruptAt == 0:
		r.at.CorruptAt, r.at.CorruptRevision = r.at.Position, r.at.Revision
	}
}

// warnMixed warns of a user whose password the members of 3.4 did not know.
func (r *run) warnMixed(user string) {
	r.report.Say(storage.Event{
		Stage: "replay", Level: storage.Warning,
		Message: fmt.Sprintf("the password of user %s was set through a member of etcd 3.5 or later, and became empty on members of 3.4: "+
			"the replay sets the intended one: set it again after the restore", user),
	})
}

func (r *run) progress() {
	now := time.Now()
	if now.Sub(r.said) >= pace {
		r.said = now
		r.report.Say(storage.Event{
			Stage: "replay", Message: fmt.Sprintf("at position %d, revision %d", r.at.Position, r.at.Revision),
		})
	}
}
