// Package records reads and writes the documents of one cluster's part of a repository: small, signed where the policy has a
// key, checked against the trusted keys when read, and bounded in size and number. It also keeps the marker that gives each
// repository its own id. Packages log and repository store everything but bulk data through it.
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

// Store reads and writes the documents of one cluster's part of a repository. It never reads or writes another cluster's.
type Store struct {
	Bucket  storage.Bucket
	Cluster string
	Policy  Policy
	// newestIsSigned reports whether the newest backup is signed, by whatever key.
	NewestIsSigned func(context.Context) (bool, error)

	marker struct {
		sync.Mutex
		id    string          // of the store's own marker, once it was read or made
		tried time.Time       // when markStored last tried to make it
		known map[string]bool // ids of the markers that count
	}
	unsigned struct {
		sync.Mutex
		allowed bool // whether unsigned writes were found to be allowed
	}
}

// Policy says how objects are written, and which are believed. The zero Policy locks nothing, signs nothing and believes
// what is whole.
type Policy struct {
	Lock  Lock       // on everything that is written but leases and suspensions, which are rewritten
	Key   sign.Key   // signs all documents but leases, which guard nothing
	Trust sign.Trust // what none of these has signed is damaged: its error matches sign.ErrUntrusted too; see Trusted
}

// Trusted returns the keys whose signatures count: Trust or, if that is empty, the policy's own key. A process that signs
// what it writes and believes what anybody writes would take forged backups for its own.
func (p Policy) Trusted() sign.Trust {
	if p.Trust.None() {
		return p.Key.Trust()
	}
	return p.Trust
}

// Lock keeps an object from being deleted or overwritten for a while. The zero Lock does not.
type Lock struct {
	For        time.Duration
	Compliance bool // nobody can lift it, not even the account's owner
}

// NewStore returns the store of the cluster called name.
func New(bucket storage.Bucket, name string, p Policy) *Store {
	p.Trust = p.Trusted()
	return &Store{Bucket: bucket, Cluster: name, Policy: p}
}

// read returns a small object as a whole.
func (s *Store) Read(ctx context.Context, key string) ([]byte, error) {
	return s.ReadUpTo(ctx, key, document.MaxKind)
}

// create stores an object that is not there yet, of about so many bytes, locked as the policy says.
func (s *Store) Create(ctx context.Context, key string, r io.Reader, about int64) error {
	o := storage.PutOptions{IfAbsent: true, Compliance: s.Policy.Lock.Compliance, SizeHint: about}
	if s.Policy.Lock.For > 0 {
		o.RetainUntil = time.Now().Add(s.Policy.Lock.For)
	}
	_, err := s.Bucket.Put(ctx, key, r, o)
	return err
}

// createSigned stores a document that is not there yet.
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

// readSigned is read of a document, which a trusted key must have signed if the policy names any. What is not trusted
// gives ErrDamaged.
func (s *Store) ReadSigned(ctx context.Context, key string) ([]byte, error) {
	data, err := s.Read(ctx, key)
	if err != nil {
		return nil, err
	}
	return data, document.Check(data, s.Policy.Trust)
}

// ReadUpTo returns an object as a whole if it has no more than limit bytes, else ErrDamaged.
func (s *Store) ReadUpTo(ctx context.Context, key string, limit int64) ([]byte, error) {
	data, _, err := s.ReadObject(ctx, key, limit)
	return data, err
}

// ReadObject is ReadUpTo that also returns the Object that it has read, which is zero if the object cannot be opened.
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

// readError returns err, of reading one object, so that it matches ErrDamaged if a repetition would not cure it and other
// objects need not meet it: one object that is archived, or of another owner, must not take the others away.
func ReadError(err error) error {
	if storage.Unreadable(err) {
		return fmt.Errorf("%w: it cannot be read: %w", catalog.ErrDamaged, err)
	}
	return err
}

func IsAbsent(err error) bool { return errors.Is(err, storage.ErrNotExist) }
