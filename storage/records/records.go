// Package records reads and writes the small documents of one cluster in a repository. A Store signs a document if its Policy
// has a key, checks signatures against the trusted keys when it reads, and limits the size of each document. An Allowance
// limits their total size in memory. The package also keeps the marker, which gives each repository an id of its own. The
// packages that store backups, the log, leases and suspensions are built on it.
package records

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// Store reads and writes the documents of one cluster in a repository. It never touches another cluster's objects. It is safe
// for concurrent use.
type Store struct {
	Bucket  storage.Bucket
	Cluster string
	Policy  Policy
	// NewestIsSigned reports whether the newest backup has a signature, by any key. It must be set before the first write if
	// Policy has no key.
	NewestIsSigned func(context.Context) (bool, error)

	marker struct {
		sync.Mutex
		id    string            // of the store's own marker; "" until it is read or created
		tried time.Time         // when EnsureMarker last tried to create it
		known map[string]string // keys of the valid markers, by id
	}
	unsigned struct {
		sync.Mutex
		allowed bool // the newest backup was found to be unsigned
	}
}

// Policy determines how objects are written, and which signatures are required of documents that are read. The zero Policy
// does not lock or sign, and accepts every document that matches its digest.
type Policy struct {
	Lock  Lock       // for all objects but those that are replaced (leases, suspensions, the index of the backups, the summary and the recent index of the log) and packs
	Key   sign.Key   // signs all documents but leases
	Trust sign.Trust // required signers, see Trusted; a document without their signature is damaged, and matches sign.ErrUntrusted
}

// Trusted returns the keys whose signatures count: Trust or, if that is empty, the public key of Key. So a process that signs
// its own backups does not accept forged ones.
func (p Policy) Trusted() sign.Trust {
	if p.Trust.None() {
		return p.Key.Trust()
	}
	return p.Trust
}

// Lock prevents an object from being deleted or replaced for a time. The zero Lock does not lock.
type Lock struct {
	For        time.Duration // from the time at which the object is stored
	Compliance bool          // not even the owner of the account can lift it
}

// New returns the store of the cluster called name. The caller must set NewestIsSigned unless p has a key or nothing is
// written.
func New(bucket storage.Bucket, name string, p Policy) *Store {
	p.Trust = p.Trusted()
	return &Store{Bucket: bucket, Cluster: name, Policy: p}
}

// Read returns the content of an object of at most document.MaxKind bytes, see ReadUpTo.
func (s *Store) Read(ctx context.Context, key string) ([]byte, error) {
	return s.ReadUpTo(ctx, key, document.MaxKind)
}

// Create stores the content of r as an object, locked by the policy. about is the expected number of bytes; 0: unknown. The error
// matches storage.ErrExist if the object exists.
func (s *Store) Create(ctx context.Context, key string, r io.Reader, about int64) error {
	o := storage.PutOptions{IfAbsent: true, Compliance: s.Policy.Lock.Compliance, SizeHint: about}
	if s.Policy.Lock.For > 0 {
		o.RetainUntil = time.Now().Add(s.Policy.Lock.For)
	}
	_, err := s.Bucket.Put(ctx, key, r, o)
	return err
}

// CreateSigned signs a document if the policy has a key, and stores it. The error matches storage.ErrExist if the object
// exists, and ErrUnsigned if an unsigned document would have no effect.
func (s *Store) CreateSigned(ctx context.Context, key string, data []byte) error {
	err := s.RefuseUnsigned(ctx)
	if err != nil {
		return err
	}
	data, err = document.Sign(data, s.Policy.Key)
	if err != nil {
		return err
	}
	return s.Create(ctx, key, bytes.NewReader(data), int64(len(data)))
}

// ReadSigned returns a document. If the policy has trusted keys, one of them must have signed the document. If none has, the error
// matches catalog.ErrDamaged and sign.ErrUntrusted.
func (s *Store) ReadSigned(ctx context.Context, key string) ([]byte, error) {
	data, err := s.Read(ctx, key)
	if err != nil {
		return nil, err
	}
	return data, document.Check(data, s.Policy.Trust)
}

// ReadUpTo returns the content of an object. The error matches catalog.ErrDamaged if the object has more than limit bytes or
// is unreadable, see ReadError, and storage.ErrNotExist if it is missing.
func (s *Store) ReadUpTo(ctx context.Context, key string, limit int64) ([]byte, error) {
	data, _, err := s.ReadObject(ctx, key, limit)
	return data, err
}

// ReadObject returns the content of an object as ReadUpTo does, and the Object itself, which is zero if it cannot be opened.
func (s *Store) ReadObject(ctx context.Context, key string, limit int64) ([]byte, storage.Object, error) {
	r, object, err := s.Bucket.Open(ctx, key, storage.OpenOptions{})
	if err != nil {
		return nil, storage.Object{}, ReadError(err)
	}
	defer r.Close()
	if object.Size > limit {
		return nil, object, fmt.Errorf("%w: it has %d bytes, more than any document of dr", catalog.ErrDamaged, object.Size)
	}
	var data bytes.Buffer
	data.Grow(int(max(0, object.Size)) + bytes.MinRead)
	_, err = data.ReadFrom(r)
	return data.Bytes(), object, ReadError(err)
}

// ReadError returns err, the error of reading one object. The result matches catalog.ErrDamaged if only this object is
// affected and a retry does not help, for example if it is archived or belongs to another account. The caller can then continue
// with the other objects.
func ReadError(err error) error {
	if storage.Unreadable(err) {
		return fmt.Errorf("%w: it cannot be read: %w", catalog.ErrDamaged, err)
	}
	return err
}

// IsAbsent reports whether err means that an object is missing.
func IsAbsent(err error) bool { return errors.Is(err, storage.ErrNotExist) }
