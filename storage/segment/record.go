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
	Request        Kind = iota + 1 // of a log from WAL: a committed request
	Change                         // of a log from Watch: what made a revision, or a lease that it needs
	RevisionMark                   // the key space's revision right after Position
	CompactionMark                 // of a log from Watch: what the key space had been compacted to by Position
	TimeMark                       // when the member's state was that of Position
	HashMark                       // the key space's hash at a revision that is reached by Position
	ServerVersion                  // which version applied the requests behind Position
)

// Source says where a log was read, and so what its positions are.
type Source string

// The sources.
const (
	// WAL is a member's write-ahead log. It has every request that was committed; a position is a raft index.
	WAL Source = "wal"
	// Watch is a client's watch on all keys. It has what became of them, and neither users nor leases without keys; a
	// position is a revision of the key space, and each is there.
	Watch Source = "watch"
)

// Record is the currency of the log: what sources yield and replay consumes. A mark at a position comes before every
// request behind that position; it may come earlier than the requests up to it.
type Record struct {
	Kind     Kind
	Position uint64 // strictly ascending over Requests; several Changes may have one
	Term     uint64 // Request: raft term of the entry

	Revision        int64  // RevisionMark: right after Position; HashMark: the revision that was hashed
	CompactRevision int64  // CompactionMark; HashMark: it was counted from there; -1: never compacted
	Hash            uint32 // HashMark: etcd's HashKV

	Time Interval // TimeMark

	// Data is the InternalRaftRequest of a Request or a Change, marshalled, or the text of a ServerVersion ("3.5.35"). It
	// is valid until the next record is asked for.
	//
	// Of the Changes with one position the last one is a put, a delete of one key, or a transaction of these without a
	// comparison. The others, before it, are grants of leases that it puts keys on; who has such a lease passes over them.
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
	Term     uint64 `json:"term"` // 0 in a log from Watch
	// Digest is 64 hex digits. WAL: SHA-256 of the raft entry's data; entries that are no requests have one too. Watch:
	// that of the Data of the position's last Change.
	Digest string `json:"digest"`
}
