// Package storage sees an object store through five verbs.
//
// A Bucket is a flat map from keys to byte streams. Everything that etcd-dr keeps, it keeps through this interface, so
// what the interface promises is what a backup can rely on. The promise is checked by one suite, storagetest, that runs
// on every store, on every decorator and on stacks of them.
package storage

import (
	"context"
	"io"
	"iter"
	"time"
)

// Bucket is all that etcd-dr asks of an object store. Its methods are safe for concurrent use.
//
// Keys are slash-separated paths without empty, "." or ".." elements; ValidKey says which. A call with another key fails
// with ErrKey and does nothing. Errors wrap one of this package's sentinels wherever one of them says what happened, and
// name the key.
type Bucket interface {
	// Put stores what r yields under key, and returns once it is durable and visible to Open, Stat and List.
	//
	// Put commits only after r has returned io.EOF. Any other error, at any byte, leaves nothing under key (or what was
	// there before), and so does a cancelled ctx. A reader vetoes a commit by returning an error in place of io.EOF:
	// there is no other verify hook. Put does not close r.
	//
	// With IfAbsent an existing key gives ErrExist and is left as it is; of several concurrent Puts one wins. Without it
	// the key is replaced in one step: a reader sees the old object or the new one. A locked object cannot be replaced
	// in a store without versions: ErrLocked.
	Put(ctx context.Context, key string, r io.Reader, o PutOptions) (Object, error)

	// Open reads one version of key from o.Offset on. The Object describes the whole object, not the range.
	//
	// The stream ends with io.EOF only after the last byte that was asked for; a stream that is cut earlier ends with
	// another error. An Offset past the end gives ErrRange; one at the end gives an empty stream. A range that reaches
	// past the end is cut there. The caller closes the stream; cancelling ctx breaks it.
	Open(ctx context.Context, key string, o OpenOptions) (io.ReadCloser, Object, error)

	// Stat describes key's newest version.
	Stat(ctx context.Context, key string) (Object, error)

	// List yields the objects whose key starts with o.Prefix and is greater than o.After, in byte order of the keys. An
	// error ends the listing, unless it is an UnlistedError. Objects that come or go meanwhile may or may not be seen; all others are seen once.
	List(ctx context.Context, o ListOptions) iter.Seq2[Object, error]

	// Delete removes key. An absent key, or a Version that is no longer there, is no error; a locked object gives
	// ErrLocked.
	Delete(ctx context.Context, key string, o DeleteOptions) error
}

// Object describes one stored object.
type Object struct {
	Key     string
	Size    int64     // bytes
	Version string    // opaque; another content under the same key has another Version
	ModTime time.Time // by the store's clock: good for the age of rubbish, never for the order of backups
	// RetainUntil is when a lock ends; zero without one.
	RetainUntil time.Time
}

// PutOptions say how to create an object.
type PutOptions struct {
	IfAbsent    bool      // fail with ErrExist rather than replace
	RetainUntil time.Time // lock the object until then; ErrUnsupported where the store has no locks
	// Compliance makes a lock one that nobody can lift or shorten, the account's owner included. Without it whoever has
	// the store's special right for that may.
	Compliance bool
	// SizeHint is about how many bytes will come, 0 where nobody knows. A store that cuts an upload into a limited number
	// of parts chooses their size by it, and what goes out in one request is not preceded by one that asks whether the key is
	// taken; it limits nothing.
	SizeHint int64
}

// ChecksFirst reports whether a Put that must not replace anything should ask whether its key is taken before it reads what to
// store: where that goes out in one request of up to so many bytes, that request's own condition costs less.
func (o PutOptions) ChecksFirst(oneRequest int) bool {
	return o.IfAbsent && (o.SizeHint <= 0 || o.SizeHint > int64(oneRequest))
}

// OpenOptions choose a range of one version.
type OpenOptions struct {
	Offset  int64  // first byte; negative gives ErrRange
	Length  int64  // 0: to the end; negative gives ErrRange
	Version string // "": the newest one; a version that is gone gives ErrNotExist
}

// ListOptions choose a part of the keys.
type ListOptions struct {
	Prefix string // any string, not only whole path elements
	After  string // exclusive; "": from the start
}

// DeleteOptions choose what to delete.
type DeleteOptions struct {
	Version string // only this version; "": the newest one
	// SkipLockCheck leaves it to the store alone to refuse what is locked, where otherwise the store is asked for a lock first.
	// It is for whoever wants to see that a lock holds, with a Version: without one, a store that keeps versions would
	// hide a locked object.
	SkipLockCheck bool
}
