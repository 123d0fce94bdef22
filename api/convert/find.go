package convert

import (
	"encoding/hex"
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/find"
	"github.com/etcd-dr/etcd-dr/restore/find/kubernetes"
)

// Key returns the document of a key.
func Key(key string) document.Key {
	k := document.Key{Key: key}
	if !utf8.ValidString(key) {
		k.KeyBase64 = []byte(key)
	}
	n, ok := kubernetes.Named(key)
	if ok {
		object := document.KubernetesObject(n)
		k.Kubernetes = &object
	}
	return k
}

// Change returns the document of a change.
func Change(c find.Change) document.Change {
	d := document.Change{
		Key: Key(c.Key), Change: "put", Revision: c.Revision, After: c.After, Position: c.Position, Lineage: c.Lineage,
		NotBefore: c.NotBefore, NotAfter: c.NotAfter, By: string(c.Request), Keys: c.Keys,
		Size: c.Size, Lease: leaseID(c.Lease), Version: c.Version, CreateRevision: c.CreateRevision,
	}
	if c.Deleted {
		d.Change = "delete"
	}
	return d
}

// leaseID returns the id in hex, "" for 0.
func leaseID(id int64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(id), 16)
}

// Unseen returns the document of a part of the history that the archive lacks.
func Unseen(u find.Unseen) document.Unseen {
	return document.Unseen{After: u.After, UpTo: u.UpTo, Lineage: u.Lineage, Since: u.Since, Until: u.Until, Reason: u.Why}
}

// Find returns the document of a search's summary. command returns the command line that restores the target of a Way.
func Find(s find.Summary, command func(find.Way) []string) document.Find {
	d := document.Find{
		Changes: s.Changes, Unseen: s.Unseen, Last: changeOf(s.Last), Gone: []document.Gone{}, Forgotten: s.Forgotten,
	}
	if s.Vanished != nil {
		d.Vanished = vanished(*s.Vanished)
	}
	if s.Mark != nil {
		d.Marked = &document.Marked{Change: Change(*s.Mark), LastGood: s.Mark.LastGood()}
	}
	for _, g := range s.Gone {
		gone := document.Gone{Change: Change(g.Change), Vanished: g.Vanished, Mark: changeOf(g.Mark), LastGood: g.LastGood()}
		emptied := s.Vanished != nil && g.Lineage == s.Vanished.Lineage && g.LastGood() > s.Vanished.LastWhole
		if g.Way == nil || emptied {
			d.Gone = append(d.Gone, gone)
			continue
		}
		gone.Restore = command(*g.Way)
		if !g.Way.Exact {
			gone.Nearest = &document.Point{Revision: g.Way.Reached, Time: g.Way.Nearest}
		}
		d.Gone = append(d.Gone, gone)
	}
	return d
}

func vanished(v find.Vanished) *document.Vanished {
	return &document.Vanished{
		Keys: v.Keys, From: v.From, To: v.To, LastWhole: v.LastWhole, Lineage: v.Lineage, NotBefore: v.NotBefore, NotAfter: v.NotAfter,
		Mark: changeOf(v.Mark), Earlier: v.Earlier,
	}
}

// changeOf returns the document of a change, nil for nil.
func changeOf(c *find.Change) *document.Change {
	if c == nil {
		return nil
	}
	d := Change(*c)
	return &d
}

// Extracted returns the document of a key with its value. If the value is a Kubernetes object that cannot be decoded, the error
// matches kubernetes.ErrEncrypted or kubernetes.ErrVersion. A value that is not a Kubernetes object causes no error.
func Extracted(e find.Entry) (document.Extracted, error) {
	d := document.Extracted{
		Key: Key(string(e.Key)), Value: e.Value, CreateRevision: e.CreateRevision, ModRevision: e.ModRevision, Version: e.Version,
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

// At returns the document of the point that a plan reached.
func At(at find.At) document.At {
	d, p := document.At{Revision: at.Revision}, at.Plan
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

// Different returns the document of a key that differs between two points.
func Different(d find.Difference) document.Different {
	doc := document.Different{Change: "changed", A: value(d.A), B: value(d.B)}
	entry := d.A
	switch {
	case d.A == nil:
		doc.Change, entry = "added", d.B
	case d.B == nil:
		doc.Change = "removed"
	}
	doc.Key = Key(string(entry.Key))
	return doc
}

func value(e *find.Entry) *document.Value {
	if e == nil {
		return nil
	}
	return &document.Value{Size: e.Size, SHA256: hex.EncodeToString(e.SHA256), ModRevision: e.ModRevision, Value: e.Value}
}

// Diff returns the document of a comparison.
func Diff(c find.Compared) document.Diff {
	return document.Diff{A: At(c.A), B: At(c.B), Added: c.Added, Changed: c.Changed, Removed: c.Removed, Same: c.Same}
}
