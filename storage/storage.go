// Package storage accesses object stores through an interface of five methods, Bucket.
//
// A Bucket is a flat map from keys to byte streams. etcd-dr stores everything through this interface, so a backup can
// rely on exactly the promises below. The test suite storagetest checks them on every store, on every decorator and on
// stacks of decorators.
//
// WithRetry, WithParallel, WithLimit, WithPrefix, NewGuard and AsOf decorate a Bucket. PutParts implements Put for
// stores that receive objects in parts. Report is how the libraries of etcd-dr report progress.
package storage

import (
	"context"
	"io"
	"iter"
	"time"
)

// Bucket is an object store. Its methods are safe for concurrent use.
//
// Keys are slash-separated paths without empty, "." or ".." elements: see ValidKey. A call with another key fails with
// ErrKey and does nothing. Errors name the key and wrap one of this package's sentinels if one applies.
type Bucket interface {
	// Put stores the content of r under key. It returns once the object is durable and visible to Open, Stat and List.
	//
	// Put commits only after r has returned io.EOF. After any other error, at any byte, and after ctx is cancelled, key
	// is as it was before: missing, or with its old object. So a reader vetoes the commit by returning an error in
	// place of io.EOF; there is no other hook to verify content. Put does not close r.
	//
	// With IfAbsent an existing key causes ErrExist and stays as it is; of several concurrent Puts one wins. Without it
	// the key is replaced in one step: a reader sees the old object or the new one. A locked object cannot be replaced
	// in a store without versions: ErrLocked.
	//
	// With IfVersion the key is replaced only if its newest version is that one, else ErrChanged; of several concurrent
	// Puts with IfVersion at most one wins. Two stores fall short: one that refuses the condition causes
	// ErrUnsupported, and one that speaks S3 may ignore it without an error. dr check reports both.
	Put(ctx context.Context, key string, r io.Reader, o PutOptions) (Object, error)

	// Open reads one version of key from o.Offset on. The Object describes the whole object, not the range.
	//
	// The stream ends with io.EOF only after the last requested byte; a stream that is cut earlier ends with another
	// error. An Offset past the end causes ErrRange; one at the end returns an empty stream. A range that reaches past
	// the end is cut there. The caller closes the stream; cancelling ctx breaks it.
	Open(ctx context.Context, key string, o OpenOptions) (io.ReadCloser, Object, error)

	// Stat describes key's newest version.
	Stat(ctx context.Context, key string) (Object, error)

	// List yields the objects whose key starts with o.Prefix and is greater than o.After, in byte order of the keys. An
	// error ends the listing, unless it is an UnlistedError. Each object that exists during the whole listing is
	// yielded once; one that appears or disappears meanwhile may be yielded or not.
	List(ctx context.Context, o ListOptions) iter.Seq2[Object, error]

	// Delete removes key. A missing key or Version is no error; a locked object causes ErrLocked.
	Delete(ctx context.Context, key string, o DeleteOptions) error
}

// Object describes one stored object.
type Object struct {
	Key     string
	Size    int64     // bytes
	Version string    // opaque; other content under the same key has another Version
	ModTime time.Time // by the store's clock: good for the age of leftovers, never for the order of backups
	// RetainUntil is when the object's lock ends; zero without a lock.
	RetainUntil time.Time
}

// PutOptions are the properties of a new object.
type PutOptions struct {
	IfAbsent bool // fail with ErrExist instead of replacing
	// IfVersion is the Version to replace, as Put, Open or Stat returned it; "": no condition. It excludes IfAbsent. It
	// serves small objects: one that does not fit into one request may cause ErrUnsupported.
	IfVersion   string
	RetainUntil time.Time // lock the object until then; ErrUnsupported if the store has no locks
	// Compliance requests a lock that no account can lift or shorten, including the owner's. Without it an account with
	// the store's special right can.
	Compliance bool
	// SizeHint is the approximate size in bytes, or 0 if unknown; it limits nothing. Stores with a limited number of
	// parts choose the part size by it. A create-only Put that fits into one request omits the check for the key.
	SizeHint int64
}

// ChecksFirst reports whether a create-only Put should check for its key before it reads the source. An object of up to
// oneRequest bytes is sent in one request, whose own condition costs less than the check.
func (o PutOptions) ChecksFirst(oneRequest int) bool {
	return o.IfAbsent && (o.SizeHint <= 0 || o.SizeHint > int64(oneRequest))
}

// OpenOptions select a range of one version.
type OpenOptions struct {
	Offset  int64  // first byte; a negative one causes ErrRange
	Length  int64  // 0: to the end; a negative one causes ErrRange
	Version string // "": the newest one; a missing version causes ErrNotExist
}

// ListOptions select a range of keys.
type ListOptions struct {
	Prefix string // any string, not only whole path elements
	After  string // exclusive; "": from the start
}

// DeleteOptions select a version and how it is deleted.
type DeleteOptions struct {
	Version string // only this version; "": the newest one
	// SkipLockCheck makes Delete send the request without checking for a lock first, so that the store itself must
	// refuse. It serves to test a lock, together with a Version: without one, a store that keeps versions would hide a
	// locked object.
	SkipLockCheck bool
}
