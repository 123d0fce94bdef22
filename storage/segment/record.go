// Package segment encodes and decodes one stored piece of the log: a plain header, then a sealed body of requests.
// docs/format.md describes it byte by byte. Encode returns a segment, and Open reads one.
//
// The header contains all facts that archiving, listing, planning and pruning need, so that they need no private key.
// The body contains the requests.
package segment

import "time"

// Kind is the kind of a Record.
type Kind uint8

// The kinds. Marks add facts about a position that the requests do not contain.
const (
	Request        Kind = iota + 1 // in a log from WAL: a committed request
	Change                         // in a log from Watch: the operation that made a revision, or a lease that it needs
	RevisionMark                   // the key space's revision directly after Position
	CompactionMark                 // in a log from Watch: the revision to which the key space had been compacted by Position
	TimeMark                       // when the member's state was that of Position
	HashMark                       // the key space's hash at a revision that is reached by Position
	ServerVersion                  // the version that applied the requests after Position
)

// Source is where a log was read. It decides what a position is.
type Source string

// The sources.
const (
	// WAL is a member's write-ahead log. It contains every committed request; a position is a raft index.
	WAL Source = "wal"
	// Watch is a client's watch on all keys. It contains the changes of keys, but neither users nor leases without
	// keys; a position is a revision of the key space, and every revision is present.
	Watch Source = "watch"
)

// Record is one element of the log: sources yield records, and replay consumes them. A mark at a position comes before
// every request after that position; it may come before requests up to it.
type Record struct {
	Kind     Kind
	Position uint64 // strictly ascending over Requests; several Changes may share one
	Term     uint64 // Request: raft term of the entry

	Revision        int64  // RevisionMark: directly after Position; HashMark: the hashed revision
	CompactRevision int64  // CompactionMark: the compacted revision; HashMark: that of the hashed key space, -1: never compacted
	Hash            uint32 // HashMark: etcd's HashKV

	Time Interval // TimeMark

	// Data is the marshalled InternalRaftRequest of a Request or a Change, or the text of a ServerVersion ("3.5.35").
	// It is valid until the next record is requested.
	//
	// Of the Changes with one position the last one is a put, a delete of one key, or a transaction of these without a
	// comparison. The Changes before it grant the leases to which it attaches keys. A reader skips the grant of a lease
	// that it already has.
	Data []byte
}

// Interval bounds a moment that lies between two times, both inclusive.
type Interval struct {
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
}

// End identifies the last entry of a history: entries that follow it may be applied only to a history with the same
// entry at Position.
type End struct {
	Position uint64 `json:"position"`
	Term     uint64 `json:"term"` // 0 in a log from Watch
	// Digest is a SHA-256, 64 hex digits. WAL: of the raft entry's data; entries that are not requests have one too.
	// Watch: of the data of the position's last change.
	Digest string `json:"digest"`
}
