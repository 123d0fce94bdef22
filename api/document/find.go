package document

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/etcd-dr/etcd-dr/restore/find"
	"github.com/etcd-dr/etcd-dr/restore/find/kubernetes"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Key is a key, and the Kubernetes object that it stands for, if it stands for one.
type Key struct {
	Key string `json:"key"`
	// KeyBase64 is the key where it is no text: then Key has marks in the place of some bytes.
	KeyBase64  []byte           `json:"keyBase64,omitempty"`
	Kubernetes *kubernetes.Name `json:"kubernetes,omitempty"`
}

// Found is one line of dr find: a change or something that was not seen.
type Found struct {
	Change *Change `json:"change,omitempty"`
	Unseen *Unseen `json:"unseen,omitempty"`
}

// Change is one thing that happened to a key.
type Change struct {
	Key
	Change   string `json:"change"`             // put or delete
	Revision int64  `json:"revision"`           // that the request made
	After    int64  `json:"after,omitempty"`    // only two states are known: it happened behind this revision, up to the other
	Position uint64 `json:"position,omitempty"` // in the log; absent: it was seen in a backup
	Lineage  string `json:"lineage,omitempty"`
	// NotBefore and NotAfter are moments between which it happened, absent where nobody knows.
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	By        string    `json:"by,omitempty"`   // put, delete, delete of a range, transaction, end of a lease; absent: see Position
	Keys      int       `json:"keys,omitempty"` // that the same request changed

	Size           int64  `json:"size,omitempty"`  // bytes of the value that was put
	Lease          string `json:"lease,omitempty"` // its id in hex
	Version        int64  `json:"version,omitempty"`
	CreateRevision int64  `json:"createRevision,omitempty"`
}

// Unseen is a part of the history of which the archive does not have everything.
type Unseen struct {
	After   int64     `json:"after,omitempty"` // revisions: behind this one
	UpTo    int64     `json:"upTo,omitempty"`  // and up to that one; absent where it is not known
	Lineage string    `json:"lineage,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	Reason  string    `json:"reason"`
}

// Find is the result of dr find.
type Find struct {
	Changes   int     `json:"changes"`
	Unseen    int     `json:"unseen"`
	Last      *Change `json:"last,omitempty"` // what happened last to any of the keys
	Gone      []Gone  `json:"gone"`           // by time
	Forgotten int     `json:"forgotten,omitempty"`
	// Vanished sums up the newest of Gone that belong together; absent if there are none.
	Vanished *Vanished `json:"vanished,omitempty"`
}

// Vanished is what vanished together, such as the objects of a namespace.
type Vanished struct {
	Keys      int       `json:"keys"`
	From      int64     `json:"from"` // revisions of the first end and of the last
	To        int64     `json:"to"`
	LastWhole int64     `json:"lastWhole"` // the last revision with all of them, and none marked for deletion
	Lineage   string    `json:"lineage,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	Mark      *Change   `json:"mark,omitempty"`    // the change that marked the namespace for deletion
	Earlier   int       `json:"earlier,omitempty"` // keys that had vanished before
}

// Gone is the end of some keys that did not come back.
type Gone struct {
	Change          // of one of them
	Vanished int    `json:"vanished"` // how many
	LastGood int64  `json:"lastGood"` // revision
	Nearest  *Point `json:"nearest,omitempty"`
	// Restore is the command that leads back to LastGood or, where that cannot be reached, to Nearest; absent if none does.
	Restore []string `json:"restore,omitempty"`
}

// Point is a point that can be restored.
type Point struct {
	Revision int64     `json:"revision,omitempty"` // absent: only a replay tells
	Time     time.Time `json:"time,omitzero"`      // it is not from after that
}

// Extracted is one line of dr extract: a key with its value.
type Extracted struct {
	Key
	Value          []byte            `json:"value"`
	Object         kubernetes.Object `json:"object,omitempty"` // all of it, with what the API server sets
	Unreadable     string            `json:"unreadable,omitempty"`
	CreateRevision int64             `json:"createRevision"`
	ModRevision    int64             `json:"modRevision"`
	Version        int64             `json:"version"`
	Lease          string            `json:"lease,omitempty"` // its id in hex
}

// Extract is the result of dr extract.
type Extract struct {
	At
	Keys       int   `json:"keys"`
	Bytes      int64 `json:"bytes"`      // of their values
	Unreadable int   `json:"unreadable"` // Kubernetes objects of which only the bytes could be given
}

// At is the point that values were read at.
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

// Value is what a key has at one of two points.
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

// NewKey is a key as a document.
func NewKey(key string) Key {
	k := Key{Key: key}
	if !utf8.ValidString(key) {
		k.KeyBase64 = []byte(key)
	}
	if n, ok := kubernetes.Named(key); ok {
		k.Kubernetes = &n
	}
	return k
}

// NewChange is c as a document.
func NewChange(c find.Change) Change {
	d := Change{
		Key: NewKey(c.Key), Change: "put", Revision: c.Revision, After: c.After, Position: c.Position, Lineage: c.Lineage,
		NotBefore: c.NotBefore, NotAfter: c.NotAfter, By: string(c.Request), Keys: c.Keys,
		Size: c.Size, Lease: leaseID(c.Lease), Version: c.Version, CreateRevision: c.CreateRevision,
	}
	if c.Deleted {
		d.Change = "delete"
	}
	return d
}

func leaseID(id int64) string {
	if id == 0 {
		return ""
	}
	return fmt.Sprintf("%x", uint64(id))
}

// NewUnseen is u as a document.
func NewUnseen(u find.Unseen) Unseen {
	return Unseen{u.After, u.UpTo, u.Lineage, u.Since, u.Until, u.Why}
}

// NewFind is s as a document; command makes the words that lead to a way's target.
func NewFind(s find.Summary, command func(find.Way) []string) Find {
	d := Find{Changes: s.Changes, Unseen: s.Unseen, Gone: []Gone{}, Forgotten: s.Forgotten}
	if s.Last != nil {
		last := NewChange(*s.Last)
		d.Last = &last
	}
	if s.Vanished != nil {
		d.Vanished = newVanished(*s.Vanished)
	}
	for _, g := range s.Gone {
		gone := Gone{Change: NewChange(g.Change), Vanished: g.Vanished, LastGood: g.LastGood()}
		if g.Way != nil {
			gone.Restore = command(*g.Way)
		}
		if g.Way != nil && !g.Way.Exact {
			gone.Nearest = &Point{g.Way.Reached, g.Way.Nearest}
		}
		d.Gone = append(d.Gone, gone)
	}
	return d
}

func newVanished(v find.Vanished) *Vanished {
	d := &Vanished{
		Keys: v.Keys, From: v.From, To: v.To, LastWhole: v.LastWhole, Lineage: v.Lineage, NotBefore: v.NotBefore, NotAfter: v.NotAfter,
		Earlier: v.Earlier,
	}
	if v.Mark != nil {
		mark := NewChange(*v.Mark)
		d.Mark = &mark
	}
	return d
}

// NewExtracted is e as a document. The error says why an object could not be read, and matches kubernetes.ErrEncrypted or
// kubernetes.ErrUnknown; what is no Kubernetes object is no error.
func NewExtracted(e find.Entry) (Extracted, error) {
	d := Extracted{
		Key: NewKey(string(e.Key)), Value: e.Value, CreateRevision: e.CreateRevision, ModRevision: e.ModRevision, Version: e.Version,
		Lease: leaseID(e.Lease),
	}
	if d.Value == nil {
		d.Value = []byte{}
	}
	object, err := kubernetes.Decode(e.Value)
	if errors.Is(err, kubernetes.ErrNoObject) {
		return d, nil
	}
	if err != nil {
		d.Unreadable = err.Error()
		return d, err
	}
	d.Object = object
	return d, nil
}

// NewAt is where a plan led, as a document.
func NewAt(at find.At) At {
	d, p := At{Revision: at.Revision}, at.Plan
	if p.Backup != nil {
		d.Backup = p.Backup.ID
	}
	if p.Log != nil {
		d.Lineage = p.Log.Lineage
	}
	if p.Reach != nil {
		d.NotBefore, d.NotAfter = p.Reach.NotBefore, p.Reach.NotAfter
	}
	return d
}

// NewDifferent is d as a document.
func NewDifferent(d find.Difference) Different {
	var key []byte
	doc := Different{Change: "changed", A: newValue(d.A), B: newValue(d.B)}
	switch {
	case d.A == nil:
		doc.Change, key = "added", d.B.Key
	case d.B == nil:
		doc.Change, key = "removed", d.A.Key
	default:
		key = d.A.Key
	}
	doc.Key = NewKey(string(key))
	return doc
}

func newValue(e *find.Entry) *Value {
	if e == nil {
		return nil
	}
	return &Value{e.Size, hex.EncodeToString(e.SHA256), e.ModRevision, e.Value}
}

// NewDiff is c as a document.
func NewDiff(c find.Compared) Diff {
	return Diff{NewAt(c.A), NewAt(c.B), c.Added, c.Changed, c.Removed, c.Same}
}
