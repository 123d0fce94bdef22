package disk

import (
	"cmp"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Log is a member's log as it stood last: from First to Last every entry is there.
type Log struct {
	There    bool
	First    uint64        // the first behind the last hole, First = Last+1: there is no entry
	Last     segment.End   // Digest is "" if this entry is not there, but came in a snapshot
	Commit   uint64        // all up to here had been committed, and the disk knew
	Whole    bool          // it was read to its end
	Torn     bool          // the last record is half written: it was never acknowledged
	Damage   string        // where it cannot be read, "" if nothing was found
	Requests []uint64      // positions of those entries that change the database, ascending
	Terms    []Place       // where each term begins
	Ends     []segment.End // the entries that Survey was asked for
	Changes  []Change
}

// Place is a position and the term there.
type Place struct{ Position, Term uint64 }

// Change is one of the membership that stands in the log. It may not have been committed.
type Change struct {
	Position uint64
	Member   string // id in hex
	Voter    bool   // it is one from here on; else it is removed, or a learner
}

// Count is the number of requests behind after, up to and including upTo.
func (l Log) Count(after, upTo uint64) int {
	behind := func(p uint64) int {
		i, _ := slices.BinarySearch(l.Requests, p+1)
		return i
	}
	return max(0, behind(upTo)-behind(after))
}

// Term is that of the entry at a position, 0 if it is not known.
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

// GoesOnFrom says that the log has every entry behind position, and none is missing before its end.
func (l Log) GoesOnFrom(position uint64) bool {
	return l.There && l.First <= position+1 && position <= l.Last.Position
}
