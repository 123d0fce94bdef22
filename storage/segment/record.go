// Package segment is one stored piece of the log: a plain header, then a sealed body of requests. docs/format.md
// describes it byte by byte.
//
// The header holds all that archiving, listing, planning and pruning need, so that whoever does that needs no private
// key. The body holds what the requests say.
package segment

import "time"

// Kind says what a Record is.
type Kind uint8

// The kinds. Marks say of a place in the log what a request alone cannot know.
const (
	Request       Kind = iota + 1 // a committed request
	RevisionMark                  // the key space's revision right after Position
	TimeMark                      // when the member's state was that of Position
	HashMark                      // the key space's hash at a revision that is reached by Position
	ServerVersion                 // which version applied the requests behind Position
)

// Record is the currency of the log: what sources yield and replay consumes. A mark at a position comes before every
// request behind that position; it may come earlier than the requests up to it.
type Record struct {
	Kind     Kind
	Position uint64 // raft index; strictly ascending over Requests
	Term     uint64 // Request: raft term of the entry

	Revision        int64  // RevisionMark: right after Position; HashMark: the revision that was hashed
	CompactRevision int64  // HashMark: it was counted from there; -1: never compacted
	Hash            uint32 // HashMark: etcd's HashKV

	Time Interval // TimeMark

	// Data is the InternalRaftRequest of a Request, marshalled, or the text of a ServerVersion ("3.5.35"). It is valid
	// until the next record is asked for.
	Data []byte
}

// Interval is a moment that is known to lie between two others, both inclusive.
type Interval struct {
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
}

// End is a place in one history: what follows it may be applied only if the entry there is this one.
type End struct {
	Position uint64 `json:"position"`
	Term     uint64 `json:"term"`
	Digest   string `json:"digest"` // SHA-256 of the raft entry's data, 64 hex digits; entries that are no requests have one too
}
