package disk

import (
	"cmp"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Log describes a member's log. It contains every entry from First to Last.
type Log struct {
	Readable bool          // false: only Damage is set
	First    uint64        // the first entry after the last hole; First = Last.Position+1: there is no entry
	Last     segment.End   // the last entry; Digest is "" if a snapshot contains it and not the log
	Commit   uint64        // the last position that the disk knows to be committed
	Whole    bool          // the log is undamaged up to its end
	Torn     bool          // the last record is incomplete; it was never acknowledged
	Damage   string        // the first fault; "" if none was found
	Requests []uint64      // positions of the entries that change the database, ascending
	Unusable []Unusable    // of these, those that a replay refuses
	Terms    []Place       // the beginning of each term
	Ends     []segment.End // its entries at the positions where segments of the repository end
	Changes  []Change
}

// Place is a position and the term there.
type Place struct{ Position, Term uint64 }

// Unusable is a request that a replay refuses.
type Unusable struct {
	Position uint64
	Reason   string
}

// Change is a change of the membership in the log. It may not have been committed.
type Change struct {
	Position uint64
	Member   string // id in hex
	Voter    bool   // true: the member becomes a voter; false: it is removed, or becomes a learner
}

// Count returns the number of requests after a position, up to and including upTo.
func (l Log) Count(after, upTo uint64) int {
	upToPosition := func(p uint64) int {
		i, _ := slices.BinarySearch(l.Requests, p+1)
		return i
	}
	return max(0, upToPosition(upTo)-upToPosition(after))
}

// Term returns the term of the entry at a position; 0 if unknown.
func (l Log) Term(position uint64) uint64 {
	i, found := slices.BinarySearchFunc(l.Terms, position, func(p Place, at uint64) int { return cmp.Compare(p.Position, at) })
	if !found {
		i--
	}
	if i < 0 || position > l.Last.Position {
		return 0
	}
	return l.Terms[i].Term
}

// ContinuesFrom reports whether the log contains every entry from the one after position to its end.
func (l Log) ContinuesFrom(position uint64) bool {
	return l.Readable && l.First <= position+1 && position <= l.Last.Position
}
