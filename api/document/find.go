package document

import (
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Key is a key, and the Kubernetes object that it belongs to, if any.
type Key struct {
	Key string `json:"key"`
	// KeyBase64 is set if the key is not UTF-8. Key then has replacement characters.
	KeyBase64  []byte            `json:"keyBase64,omitempty"`
	Kubernetes *KubernetesObject `json:"kubernetes,omitempty"`
}

// KubernetesObject identifies the object that a key belongs to, as far as the key shows it.
type KubernetesObject struct {
	Kind      string `json:"kind,omitempty"`  // absent if only a CustomResourceDefinition knows it
	Resource  string `json:"resource"`        // in the plural, as in URLs
	Group     string `json:"group,omitempty"` // of custom resources
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Found is one line of dr find: either a change or an unseen part.
type Found struct {
	Change *Change `json:"change,omitempty"`
	Unseen *Unseen `json:"unseen,omitempty"`
}

// Change is one change of a key.
type Change struct {
	Key
	Change   string `json:"change"`             // put or delete
	Revision int64  `json:"revision"`           // that the request made
	After    int64  `json:"after,omitempty"`    // set if only two states are known: it happened after this revision, up to Revision
	Position uint64 `json:"position,omitempty"` // in the log; absent: it was seen in a backup
	Lineage  string `json:"lineage,omitempty"`
	// NotBefore and NotAfter are moments between which it happened; absent if unknown.
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	By        string    `json:"by,omitempty"`   // put, delete, delete of a range, transaction, end of a lease; absent: see Position
	Keys      int       `json:"keys,omitempty"` // that the same request changed

	Size           int64  `json:"size,omitempty"`  // bytes of the value that was put
	Lease          string `json:"lease,omitempty"` // its id in hex
	Version        int64  `json:"version,omitempty"`
	CreateRevision int64  `json:"createRevision,omitempty"`
}

// Unseen is a part of the history that is incomplete in the archive.
type Unseen struct {
	After   int64     `json:"after,omitempty"` // revisions: after this one
	UpTo    int64     `json:"upTo,omitempty"`  // and up to that one; absent if unknown
	Lineage string    `json:"lineage,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	Reason  string    `json:"reason"`
}

// Find is the result of dr find.
type Find struct {
	Changes   int     `json:"changes"`
	Unseen    int     `json:"unseen"`
	Last      *Change `json:"last,omitempty"` // the last change of any of the keys
	Gone      []Gone  `json:"gone"`           // by time
	Forgotten int     `json:"forgotten,omitempty"`
	// Vanished sums up the newest keys of Gone that vanished together; absent if there are none.
	Vanished *Vanished `json:"vanished,omitempty"`
	// Marked is set if the only searched key, or the searched namespace, exists and is marked for deletion.
	Marked *Marked `json:"marked,omitempty"`
}

// Marked is the change that marked a Kubernetes object for deletion.
type Marked struct {
	Change
	LastGood int64 `json:"lastGood"` // the last revision at which the object was not marked
}

// Vanished sums up keys that vanished together, such as the objects of a namespace.
type Vanished struct {
	Keys      int       `json:"keys"`
	From      int64     `json:"from"` // revision at which the first of them vanished; To: the last
	To        int64     `json:"to"`
	LastWhole int64     `json:"lastWhole"` // the last revision with all of them, and none marked for deletion
	Lineage   string    `json:"lineage,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	Mark      *Change   `json:"mark,omitempty"`    // the change that marked the namespace for deletion
	Earlier   int       `json:"earlier,omitempty"` // keys that had vanished before
}

// Gone is the deletion of some keys that were not put again.
type Gone struct {
	Change       // of one of them
	Vanished int `json:"vanished"` // how many
	// Mark is the change that had marked the object for deletion; absent if there was none. LastGood is then before it.
	Mark     *Change `json:"mark,omitempty"`
	LastGood int64   `json:"lastGood"` // revision
	Nearest  *Point  `json:"nearest,omitempty"`
	// Restore is the command that restores LastGood or, if that is unreachable, Nearest; absent if neither is reachable.
	Restore []string `json:"restore,omitempty"`
}

// Point is a point that can be restored.
type Point struct {
	Revision int64     `json:"revision,omitempty"` // absent: only a replay can find it
	Time     time.Time `json:"time,omitzero"`      // an upper bound for its time
}

// Extracted is one line of dr extract: a key with its value.
type Extracted struct {
	Key
	Value          []byte         `json:"value"`
	Object         map[string]any `json:"object,omitempty"` // all of it, with what the API server sets
	Unreadable     string         `json:"unreadable,omitempty"`
	CreateRevision int64          `json:"createRevision"`
	ModRevision    int64          `json:"modRevision"`
	Version        int64          `json:"version"`
	Lease          string         `json:"lease,omitempty"` // its id in hex
}

// Extract is the result of dr extract.
type Extract struct {
	At
	Keys       int   `json:"keys"`
	Bytes      int64 `json:"bytes"`      // of their values
	Unreadable int   `json:"unreadable"` // Kubernetes objects that could not be decoded
}

// At is the point at which values were read.
type At struct {
	Revision  int64      `json:"revision"`
	Backup    catalog.ID `json:"backup"`
	Lineage   string     `json:"lineage,omitempty"` // of the log that was replayed onto it
	NotBefore time.Time  `json:"notBefore,omitzero"`
	NotAfter  time.Time  `json:"notAfter,omitzero"`
}

// Different is one line of dr diff.
type Different struct {
	Key
	Change string `json:"change"` // added, changed or removed
	A      *Value `json:"a,omitempty"`
	B      *Value `json:"b,omitempty"`
}

// Value is the value of a key at one of two points.
type Value struct {
	Size        int64  `json:"size"`
	SHA256      string `json:"sha256"`
	ModRevision int64  `json:"modRevision"`
	Value       []byte `json:"value,omitempty"` // with --values
}

// Diff is the result of dr diff.
type Diff struct {
	A       At  `json:"a"`
	B       At  `json:"b"`
	Added   int `json:"added"`
	Changed int `json:"changed"`
	Removed int `json:"removed"`
	Same    int `json:"same"`
}
