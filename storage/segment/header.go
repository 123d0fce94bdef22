package segment

import (
	"time"

	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Format is the number of the segment's format that this version writes and reads.
const Format = 1

// Header is what a segment says of itself. It is stored in plain, so it must never hold a key, a value or a secret.
type Header struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"` // its name in the repository
	Lineage string `json:"lineage"` // 32 hex digits: one unbroken history
	Seq     uint64 `json:"seq"`     // from 1; the name under which it is stored
	// Previous is the digest of the previous segment's header, "" in the first: a chain that nobody can cut or splice.
	Previous string `json:"previous,omitempty"`

	// First to Last are the positions that it covers, both inclusive. Not each of them is a request: raft's own entries,
	// and those about the membership, are left out.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	End   End    `json:"end"` // of the entry at Last
	// Reason says why it does not begin right behind what came before: a gap in the lineage, or the first of a lineage
	// that does not continue the one in After.
	Reason string `json:"reason,omitempty"`
	After  *After `json:"after,omitempty"`

	Requests int    `json:"requests"` // or changes; at least 1, but for a segment that only holds marks of a longer stretch of raft's own entries
	Marks    []Mark `json:"marks"`    // ascending by position and time
	Hashes   []Hash `json:"hashes,omitempty"`
	// GuessedLeases is how many grants have a TTL that nobody knew any more. Only in a log from Watch.
	GuessedLeases int `json:"guessedLeases,omitempty"`

	Source        Source    `json:"source"`
	ClusterID     string    `json:"clusterID"`          // etcd's, in hex
	Member        string    `json:"member"`             // whose log it was read from, or who was watched: id in hex
	Diverged      string    `json:"diverged,omitempty"` // how the members' key spaces were known to differ when it was cut
	ServerVersion string    `json:"serverVersion"`      // of that member: which rules it applied
	Writer        string    `json:"writer"`             // random name of the archiver's run
	Written       time.Time `json:"written"`            // by the archiver's clock
	DRVersion     string    `json:"drVersion"`

	Plain  Blob      `json:"plain"`  // the body's records
	Stored Blob      `json:"stored"` // the body, sealed
	Seal   seal.Seal `json:"seal"`

	// Signature is that of the document which the header was read from, "" if it has none. It is not part of what it signs.
	Signature string `json:"-"`
}

// After is the end of an older lineage of the same cluster.
type After struct {
	Lineage  string    `json:"lineage"`
	Seq      uint64    `json:"seq"`
	Position uint64    `json:"position"`
	Time     time.Time `json:"time"` // its last mark's notAfter
}

// Mark ties a position to what the member said of itself: at some moment of Interval its state was that right after
// Position. A segment's first mark may be at the position before its First.
type Mark struct {
	Position uint64 `json:"position"`
	Revision int64  `json:"revision,omitempty"` // of the key space right after Position; 0: not known
	// CompactRevision is what the key space had been compacted to by then. Only in a log from Watch, for one from WAL has
	// the compactions themselves; 0: never, or not known.
	CompactRevision int64 `json:"compactRevision,omitempty"`
	Interval
}

// Hash is the member's HashKV. The key space had reached Revision by Position.
type Hash struct {
	Position        uint64 `json:"position"`
	Revision        int64  `json:"revision"`
	CompactRevision int64  `json:"compactRevision"` // -1: never compacted
	Hash            uint32 `json:"hash"`
}

// Blob is a run of bytes and its digest.
type Blob struct {
	Size   int64  `json:"size"`   // bytes
	SHA256 string `json:"sha256"` // 64 hex digits
}
