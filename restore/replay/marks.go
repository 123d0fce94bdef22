package replay

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// lastPosition is at or after the position of every mark.
const lastPosition = math.MaxUint64

// marks holds the marks whose positions the replay has not reached yet, ordered by position. In a segment all marks come before
// the first request.
type marks []mark

type mark struct {
	segment.Record
	version string // of a ServerVersion
}

// add stores a mark until its position is reached. The database was at position base at the start; the last request that was
// read is at seen.
func (m *marks) add(d *decoded, base, seen uint64) error {
	switch d.Kind {
	case segment.TimeMark:
		return nil
	case segment.RevisionMark, segment.HashMark, segment.CompactionMark:
		if d.Position < base {
			return nil // the database has already moved past it: it cannot be compared
		}
		if d.Position < seen {
			return fmt.Errorf("%w: a mark at position %d comes after the request at %d", ErrForeign, d.Position, seen)
		}
	case segment.ServerVersion:
	default:
		return fmt.Errorf("%w: a record of kind %d", ErrRequest, d.Kind)
	}
	at, _ := slices.BinarySearchFunc(*m, d.Position+1, func(held mark, position uint64) int {
		return cmp.Compare(held.Position, position)
	})
	*m = slices.Insert(*m, at, mark{d.Record, d.version})
	return nil
}

// compareMarks checks the marks up to a position. The caller has applied every request up to there.
func (r *run) compareMarks(upTo uint64) error {
	reached := 0
	for ; reached < len(r.marks) && r.marks[reached].Position <= upTo; reached++ {
		err := r.compareMark(r.marks[reached])
		if err != nil {
			return err
		}
	}
	r.marks = slices.Delete(r.marks, 0, reached)
	return nil
}

// compareMark compares the database in its current state with a mark.
func (r *run) compareMark(m mark) error {
	switch {
	case m.Kind == segment.ServerVersion:
		return r.badRecord(max(m.Position, r.at.Position), r.setVersion(m.version))
	case r.source == segment.Watch && m.Position != r.at.Position: // the log ends without a revision that it names
		return r.differs(m.Position, int64(m.Position))
	case m.Kind == segment.CompactionMark:
		return r.compactTo(m.CompactRevision)
	case m.Kind == segment.HashMark:
		return r.compareHash(m)
	}
	if m.Revision != r.at.Revision {
		return r.differs(m.Position, m.Revision)
	}
	r.at.Marked = m.Position
	r.held = r.at
	return nil
}

// differs returns the error for a database whose revision is not want, the member's.
func (r *run) differs(position uint64, want int64) error {
	return &MismatchError{Position: position, Want: want, Got: r.at.Revision, Last: r.held, Disputed: r.disputedSinceMark()}
}

// disputedSinceMark returns MismatchError.Disputed.
func (r *run) disputedSinceMark() uint64 {
	if r.disputed <= r.held.Position {
		return 0
	}
	return r.disputed
}

// compareHash compares the hash of the database with that of a mark. It ignores a hash that was computed after a different
// compaction, because such a hash covers different bytes.
func (r *run) compareHash(m mark) error {
	got, err := r.hash(m)
	switch {
	case errors.Is(err, mvcc.ErrFutureRev):
		return r.differs(m.Position, m.Revision)
	case errors.Is(err, mvcc.ErrCompacted) || err == nil && got.CompactRevision != m.CompactRevision:
		return nil
	case err != nil:
		return fmt.Errorf("hash the key space at revision %d: %w", m.Revision, err)
	case got.Hash != m.Hash:
		return &MismatchError{
			Position: m.Position, Hashed: m.Revision, Want: int64(m.Hash), Got: int64(got.Hash), Last: r.held,
			Disputed: r.disputedSinceMark(),
		}
	}
	r.at.Proven = m.Revision
	r.held.Proven = m.Revision
	return nil
}

// hash returns the hash of the database at the mark's revision. In a log of source Watch the mark also names the revision to
// compact to first. After a compaction to exactly the mark's revision, etcd would return a cached hash that was computed from the
// previous compaction. So for such a log hash asks for revision 0, which means the newest and is not cached.
func (r *run) hash(m mark) (mvcc.KeyValueHash, error) {
	revision := m.Revision
	if r.source == segment.Watch {
		if m.Revision != r.at.Revision {
			return mvcc.KeyValueHash{}, mvcc.ErrFutureRev
		}
		err := r.compactTo(m.CompactRevision)
		if err != nil {
			return mvcc.KeyValueHash{}, err
		}
		revision = 0
	}
	hash, err := r.keys.hash(revision)
	if r.indexed != nil && inDoubt(m, hash, err) {
		r.useStore()
		hash, err = r.keys.hash(revision)
	}
	return hash, err
}

// inDoubt reports whether only etcd's store can decide: our own hash differs from the mark's, or the key space is not as we expect.
func inDoubt(m mark, got mvcc.KeyValueHash, err error) bool {
	if err != nil {
		return !errors.Is(err, mvcc.ErrCompacted) && !errors.Is(err, mvcc.ErrFutureRev)
	}
	return got.CompactRevision == m.CompactRevision && got.Hash != m.Hash
}
