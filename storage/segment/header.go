package segment

import (
	"time"

	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Format is the format number that this version writes and reads. Adding a field raises it: readers refuse unknown fields.
const Format = 1

// Header describes a segment. It is stored in plain, so it must never contain a key, a value or a secret.
type Header struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"` // its name in the repository
	Lineage string `json:"lineage"` // 32 hex digits: one unbroken history
	Seq     uint64 `json:"seq"`     // from 1; the name under which it is stored
	// Previous is the digest of the previous segment's header, "" in the first one. The digests form a chain that
	// cannot be cut or spliced unnoticed.
	Previous string `json:"previous,omitempty"`

	// First to Last are the covered positions, both inclusive. Some are not requests: raft's own entries, and those
	// about the membership, are omitted.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	End   End    `json:"end"` // describes the entry at Last
	// Reason explains why the segment does not continue directly after the one before: a gap in the lineage, or the
	// first segment of a lineage that does not continue the one in After.
	Reason string `json:"reason,omitempty"`
	After  *After `json:"after,omitempty"`

	Requests int    `json:"requests"` // number of requests or changes; 0 only in a segment of marks alone, for a longer run of raft's own entries
	Marks    []Mark `json:"marks"`    // ascending by position and time
	Hashes   []Hash `json:"hashes,omitempty"`
	// GuessedLeases is the number of lease grants whose TTL was no longer known. Only in a log from Watch.
	GuessedLeases int `json:"guessedLeases,omitempty"`

	Source        Source    `json:"source"`
	ClusterID     string    `json:"clusterID"`          // etcd's, in hex
	Member        string    `json:"member"`             // id in hex of the member whose log was read or that was watched
	Diverged      string    `json:"diverged,omitempty"` // how the members' key spaces differed when the segment was made; "" if unknown or equal
	ServerVersion string    `json:"serverVersion"`      // of that member; selects the rules for applying requests
	Writer        string    `json:"writer"`             // random name of the archiver's run
	Written       time.Time `json:"written"`            // by the archiver's clock
	DRVersion     string    `json:"drVersion"`

	Plain  Blob      `json:"plain"`  // the body before it was sealed
	Stored Blob      `json:"stored"` // the body, sealed
	Seal   seal.Seal `json:"seal"`

	// Signature is the signature of the document from which the header was decoded, "" if it has none. It does not
	// cover itself.
	Signature string `json:"-"`
}

// After is the end of an older lineage of the same cluster.
type After struct {
	Lineage  string    `json:"lineage"`
	Seq      uint64    `json:"seq"`
	Position uint64    `json:"position"`
	Time     time.Time `json:"time"` // its last mark's notAfter; without marks, when its last segment was written
}

// Mark ties a position to the member's own report: at some moment of Interval its state was the one directly after
// Position. A segment's first mark may be at the position before its First.
type Mark struct {
	Position uint64 `json:"position"`
	Revision int64  `json:"revision,omitempty"` // of the key space directly after Position; 0: unknown
	// CompactRevision is the revision to which the key space had been compacted by then; 0: never or unknown. Only in a
	// log from Watch: a log from WAL contains the compactions themselves.
	CompactRevision int64 `json:"compactRevision,omitempty"`
	Interval
}

// Hash is the member's HashKV at Revision. The key space had reached Revision by Position.
type Hash struct {
	Position        uint64 `json:"position"`
	Revision        int64  `json:"revision"`
	CompactRevision int64  `json:"compactRevision"` // -1: never compacted
	Hash            uint32 `json:"hash"`
}

// Blob is the size and digest of a run of bytes.
type Blob struct {
	Size   int64  `json:"size"`   // bytes
	SHA256 string `json:"sha256"` // 64 hex digits
}
