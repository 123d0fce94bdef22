// Package repository is what etcd-dr keeps in a bucket, for many clusters:
//
//	<cluster>/backups/<id>/snapshot.db.zst[.age]   the sealed snapshot
//	<cluster>/backups/<id>/manifest.json           written last, create-only: with it the backup exists
//	<cluster>/backups/<id>/proof-<time>.json       what a verify found; appended, never rewritten
//	<cluster>/backups/<id>/pin-<pin>.json          it is to stay, until unpin-<pin>.json says otherwise
//	<cluster>/backups/<id>/tombstone-<16 hex>.json it is deleted, unless it is pinned; what is left goes later
//	<cluster>/log/<lineage>/<seq, 16 hex>.seg      one piece of the log; create-only: the name is the fence
//	<cluster>/log/<lineage>/index-<first seq, 16 hex>.json  the headers of many again, so that a year lists fast
//	<cluster>/log/<lineage>/tombstone-<seq, 16 hex>.json    the segments up to that one are pruned; what is left goes later
//	<cluster>/leases/<job>.json                    who works now; rewritten, and only avoids double work
//	<cluster>/suspension.json                      whether services may start anything; rewritten, the last word counts
//	<cluster>/unsuspend-<id>.json                  that suspension has ended for good
//	<cluster>/repository[-<key>].json              the random id that all of it carries which deletes or suspends
package repository

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// Cluster is one cluster's part of a repository. It never reads or writes another's.
type Cluster struct {
	bucket storage.Bucket
	name   string
	policy Policy
	// headers remembers those of segments; nil: nothing does.
	headers *Headers

	marker struct {
		sync.Mutex
		id    string          // of the own one, once it was seen
		tried time.Time       // when markStored last tried to make it
		known map[string]bool // ids of those that count
	}
	unsigned struct { // writes are allowed, as far as was looked
		sync.Mutex
		allowed bool
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

// Open sees the part of the cluster called name. It asks the bucket nothing: a cluster exists with its first backup.
func Open(bucket storage.Bucket, name string) (*Cluster, error) {
	return OpenWith(bucket, name, Policy{})
}

// OpenWith is Open with a policy.
func OpenWith(bucket storage.Bucket, name string, p Policy) (*Cluster, error) {
	if err := catalog.ValidCluster(name); err != nil {
		return nil, err
	}
	p.Trust = p.Trusted()
	return &Cluster{bucket: bucket, name: name, policy: p}, nil
}

// Policy is what the cluster was opened with; its Trust is what Trusted returns.
func (c *Cluster) Policy() Policy { return c.policy }

// Name is the cluster's name in the repository.
func (c *Cluster) Name() string { return c.name }

// Clusters are the names of the clusters in bucket, in order. It costs one listing of one object a cluster.
func Clusters(ctx context.Context, bucket storage.Bucket) ([]string, error) {
	var names []string
	for after := ""; ; {
		name, err := firstCluster(ctx, bucket, after)
		if err != nil || name == "" {
			slices.Sort(names) // in the listing "a-b/" stands before "a/"
			return names, err
		}
		if catalog.ValidCluster(name) == nil {
			names = append(names, name)
		}
		after = name + "0" // "0" follows "/": past every key of this cluster, before those of any other
	}
}

func firstCluster(ctx context.Context, bucket storage.Bucket, after string) (string, error) {
	for object, err := range bucket.List(ctx, storage.ListOptions{After: after}) {
		key := object.Key
		if u, unlisted := errors.AsType[*storage.UnlistedError](err); unlisted {
			key, err = u.Prefix, nil
		}
		if err != nil {
			return "", fmt.Errorf("list clusters: %w", err)
		}
		if name, _, ok := strings.Cut(key, "/"); ok {
			return name, nil
		}
	}
	return "", nil
}

// read returns a small object as a whole.
func (c *Cluster) read(ctx context.Context, key string) ([]byte, error) {
	return c.readUpTo(ctx, key, document.MaxKind)
}

// create stores an object that is not there yet, of about so many bytes, locked as the policy says.
func (c *Cluster) create(ctx context.Context, key string, r io.Reader, about int64) error {
	o := storage.PutOptions{IfAbsent: true, Compliance: c.policy.Lock.Compliance, SizeHint: about}
	if c.policy.Lock.For > 0 {
		o.RetainUntil = time.Now().Add(c.policy.Lock.For)
	}
	_, err := c.bucket.Put(ctx, key, r, o)
	return err
}

// createSigned stores a document that is not there yet.
func (c *Cluster) createSigned(ctx context.Context, key string, data []byte) error {
	err := c.refuseUnsigned(ctx)
	if err != nil {
		return err
	}
	data, err = document.Sign(data, c.policy.Key)
	if err != nil {
		return err
	}
	return c.create(ctx, key, bytes.NewReader(data), int64(len(data)))
}

// readSigned is read of a document, which a trusted key must have signed if the policy names any. What is not trusted
// gives ErrDamaged.
func (c *Cluster) readSigned(ctx context.Context, key string) ([]byte, error) {
	data, err := c.read(ctx, key)
	if err != nil {
		return nil, err
	}
	return data, document.Check(data, c.policy.Trust)
}

// readUpTo returns an object as a whole if it has no more than limit bytes, else ErrDamaged.
func (c *Cluster) readUpTo(ctx context.Context, key string, limit int64) ([]byte, error) {
	r, object, err := c.bucket.Open(ctx, key, storage.OpenOptions{})
	if err != nil {
		return nil, readError(err)
	}
	defer r.Close()
	if object.Size > limit {
		return nil, fmt.Errorf("%w: it has %d bytes, more than any document of dr", catalog.ErrDamaged, object.Size)
	}
	var data bytes.Buffer
	data.Grow(int(max(0, object.Size)) + bytes.MinRead)
	_, err = data.ReadFrom(r)
	return data.Bytes(), readError(err)
}

// readError returns err, of reading one object, so that it matches ErrDamaged if a repetition would not cure it and other
// objects need not meet it: one object that is archived, or of another owner, must not take the others away.
func readError(err error) error {
	if storage.Unreadable(err) {
		return fmt.Errorf("%w: it cannot be read: %w", catalog.ErrDamaged, err)
	}
	return err
}
