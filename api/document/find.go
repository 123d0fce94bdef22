package document

import (
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Key is a key and the object of Kubernetes that it belongs to, if any.
type Key struct {
	Key string `json:"key"` // as text
	// KeyBase64 is the key, if it is not UTF-8. Key then contains replacement characters.
	KeyBase64  []byte            `json:"keyBase64,omitempty"`
	Kubernetes *KubernetesObject `json:"kubernetes,omitempty"` // the object; absent if the key belongs to none
}

// KubernetesObject identifies the object that a key belongs to, as far as the key shows it.
type KubernetesObject struct {
	Kind      string `json:"kind,omitempty"`      // absent if only a CustomResourceDefinition defines it
	Resource  string `json:"resource"`            // in the plural, as in URLs
	Group     string `json:"group,omitempty"`     // of custom resources
	Namespace string `json:"namespace,omitempty"` // absent if the object has none
	Name      string `json:"name"`
}

// Found is one line of dr find: either a change or an unseen part.
type Found struct {
	Change *Change `json:"change,omitempty"` // a change of a key
	Unseen *Unseen `json:"unseen,omitempty"` // a part of the history that the archive does not contain
}

// Change is one change of a key.
type Change struct {
	Key
	Change   string `json:"change"`   // "put" or "delete"
	Revision int64  `json:"revision"` // the one that the request made
	// After is set if only the states at two revisions are known: the change happened after this revision, and no later than Revision.
	// It equals Revision if another history began there.
	After    int64  `json:"after,omitempty"`
	Position uint64 `json:"position,omitempty"` // in the log; absent if the change was found in a backup
	Lineage  string `json:"lineage,omitempty"`  // absent if unknown
	// NotBefore and NotAfter are the moments between which it happened; absent if unknown.
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	// By is the request: "put", "delete", "delete of a range", "transaction", "end of a lease" or, from a watch, "delete or end of a
	// lease", "delete of several keys"; absent if the change was found in a backup.
	By   string `json:"by,omitempty"`
	Keys int    `json:"keys,omitempty"` // how many keys the same request changed; absent like By

	Size           int64  `json:"size,omitempty"`           // bytes of the value that was put
	Lease          string `json:"lease,omitempty"`          // of a put: its id in hex
	Version        int64  `json:"version,omitempty"`        // of a put
	CreateRevision int64  `json:"createRevision,omitempty"` // of a put
}

// Unseen is a part of the history that is incomplete in the archive.
type Unseen struct {
	After   int64     `json:"after,omitempty"` // the part begins after this revision
	UpTo    int64     `json:"upTo,omitempty"`  // and ends at this one; absent if unknown
	Lineage string    `json:"lineage,omitempty"`
	Since   time.Time `json:"since,omitzero"` // when the part begins; absent if unknown
	Until   time.Time `json:"until,omitzero"` // when it ends; absent if unknown
	Reason  string    `json:"reason"`
}

// Find is the result of dr find.
type Find struct {
	Changes   int     `json:"changes"`             // the number of items that are changes
	Unseen    int     `json:"unseen"`              // the number of items that are unseen parts
	Last      *Change `json:"last,omitempty"`      // the last change of any of the keys
	Gone      []Gone  `json:"gone"`                // deletions of keys that were not put again, by time
	Forgotten int     `json:"forgotten,omitempty"` // deleted keys beyond the newest 100,000, which Gone does not list
	// Vanished is a summary of the newest deletions in Gone that belong together, such as those of a namespace, without keys whose lease
	// ended; absent if there are none.
	Vanished *Vanished `json:"vanished,omitempty"`
	// Marked is the change that marked the object of --key, or the namespace of --namespace, for deletion; absent unless the object exists
	// and is marked.
	Marked *Marked `json:"marked,omitempty"`
}

// Marked is the change that marked a Kubernetes object for deletion.
type Marked struct {
	Change
	LastGood int64 `json:"lastGood"` // the last revision at which it was not marked
}

// Vanished is a summary of keys that vanished together, such as the objects of a namespace.
type Vanished struct {
	Keys int `json:"keys"` // how many
	// From and To are the revisions at which the first and the last of them vanished.
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	LastWhole int64  `json:"lastWhole"`         // the last revision at which all of them existed and none was marked for deletion
	Lineage   string `json:"lineage,omitempty"` // absent if unknown
	// NotBefore and NotAfter are the moments between which they vanished; absent if unknown.
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	Mark      *Change   `json:"mark,omitempty"`    // the change that marked the namespace for deletion; absent if there is none
	Earlier   int       `json:"earlier,omitempty"` // how many keys had vanished before; absent if none had
}

// Gone is the deletion of keys that were not put again. The fields of Change are about one of these keys, the other fields about
// all of them.
type Gone struct {
	Change
	Vanished int `json:"vanished"` // how many keys
	// Mark is the change that had marked the object, or its namespace, for deletion; absent if there was none or it is unknown. LastGood
	// is before it.
	Mark     *Change `json:"mark,omitempty"`
	LastGood int64   `json:"lastGood"`          // the last good revision
	Nearest  *Point  `json:"nearest,omitempty"` // the nearest point that can be restored
	// Restore is the command that restores LastGood or, if that is unreachable, Nearest; absent if neither is reachable, or if keys that
	// vanished together with these are already missing there.
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
	Value          []byte         `json:"value"`                // in base64
	Object         map[string]any `json:"object,omitempty"`     // a Kubernetes object with all its fields
	Unreadable     string         `json:"unreadable,omitempty"` // why there is no object, such as encryption
	CreateRevision int64          `json:"createRevision"`
	ModRevision    int64          `json:"modRevision"`
	Version        int64          `json:"version"`
	Lease          string         `json:"lease,omitempty"` // its id in hex
}

// Extract is the result of dr extract.
type Extract struct {
	At
	Keys       int   `json:"keys"`       // how many items
	Bytes      int64 `json:"bytes"`      // of their values
	Unreadable int   `json:"unreadable"` // Kubernetes objects that could not be decoded
}

// At is the point at which values were read.
type At struct {
	Revision int64      `json:"revision"`
	Backup   catalog.ID `json:"backup"`
	Lineage  string     `json:"lineage,omitempty"` // of the log that was replayed onto it
	// NotBefore and NotAfter are the bounds of its time: it contains every write acknowledged by NotBefore, and none after NotAfter.
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
}

// Different is one line of dr diff.
type Different struct {
	Key
	Change string `json:"change"` // "added", "changed" or "removed"
	// A and B are the values at the two points; absent if there is none.
	A *Value `json:"a,omitempty"`
	B *Value `json:"b,omitempty"`
}

// Value is the value of a key at one of two points.
type Value struct {
	Size        int64  `json:"size"`   // bytes
	SHA256      string `json:"sha256"` // 64 hex digits
	ModRevision int64  `json:"modRevision"`
	Value       []byte `json:"value,omitempty"` // with --values, in base64
}

// Diff is the result of dr diff.
type Diff struct {
	// A and B are the two points.
	A At `json:"a"`
	B At `json:"b"`
	// Added, Changed, Removed and Same are numbers of keys.
	Added   int `json:"added"`
	Changed int `json:"changed"`
	Removed int `json:"removed"`
	Same    int `json:"same"`
}
