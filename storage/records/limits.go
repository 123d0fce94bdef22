package records

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
)

// Bounds on the memory of catalogs, whatever an attacker has put into the stores. docs/stores.md documents them.
const (
	maxDocuments = 64 << 20  // bytes of all manifests, proofs and pins of one catalog in memory
	maxReading   = 256 << 20 // bytes of those of all catalogs that the process reads at the same time, small ones aside
	Small        = 4 << 20   // bytes of those of a small catalog
	MaxListed    = 500_000   // objects of a cluster's backups; in its log, consecutive segments count as one
)

// reading is the part of maxReading that is free. A small catalog takes nothing from it: the newest backups, which make a
// backup due or not, are read at once even if a store with large catalogs hangs.
var reading = semaphore.NewWeighted(maxReading)

// TooMany returns the error for a listing of prefix with more than MaxListed objects.
func TooMany(prefix string) error {
	return fmt.Errorf("there are more than %d objects below %s: remove what dr has not written", MaxListed, prefix)
}

// Allowance counts the bytes of documents that may still be kept in memory. A nil Allowance is unlimited. It is safe for
// concurrent use.
type Allowance struct {
	left     atomic.Int64
	reserved int64 // taken from reading
	hold     *hold // gets reserved when the catalog is read; nil: reading does
}

// NewAllowance returns the Allowance for reading one catalog, whose documents have size bytes by their listing. While they are read,
// copies of so many bytes are in memory too. It waits until the process may read that much. The caller must call Close when the catalog is
// read.
func NewAllowance(ctx context.Context, size, copies int64) (*Allowance, error) {
	a := &Allowance{}
	a.hold, _ = ctx.Value(holdKey{}).(*hold)
	size = min(size, maxDocuments)
	a.left.Store(size)
	size += min(copies, maxDocuments)
	if size <= Small {
		return a, nil
	}
	err := reading.Acquire(ctx, size)
	if err != nil {
		return nil, fmt.Errorf("wait until other catalogs are read, which have %d MiB in memory: %w", maxReading>>20, err)
	}
	a.reserved = size
	return a, nil
}

// Close lets other catalogs be read, unless the context had a hold.
func (a *Allowance) Close() {
	if a.hold != nil {
		a.hold.reserved.Add(a.reserved)
		return
	}
	reading.Release(a.reserved)
}

// Hold returns a context for reading one catalog that the caller keeps for the time of a job. The catalog counts as being read until the
// caller calls release. Only one may be read with it: a job that held one and waited for the next could block others for ever.
func Hold(ctx context.Context) (held context.Context, release func()) {
	h := &hold{}
	return context.WithValue(ctx, holdKey{}, h), func() { reading.Release(h.reserved.Swap(0)) }
}

type hold struct{ reserved atomic.Int64 }

type holdKey struct{}

// Listed returns the bytes that a document takes from an Allowance if its listing has size bytes.
func Listed(size int64) int64 { return min(size, document.MaxKind) } // larger documents are not read

// Take takes the size of a document, in bytes, and reports whether that much was left.
func (a *Allowance) Take(size int64) bool {
	if a == nil {
		return true
	}
	size = Listed(size)
	if a.left.Add(-size) >= 0 {
		return true
	}
	a.left.Add(size)
	return false
}

// Return gives back the size of a document that is not kept.
func (a *Allowance) Return(size int64) {
	if a != nil {
		a.left.Add(Listed(size))
	}
}

// NotRead returns the error for a document that was not read, since the Allowance is used up. It matches catalog.ErrDamaged.
func NotRead(key string) error {
	return fmt.Errorf("%s: %w: not read: the documents of this cluster before it have more than %d MiB", key, catalog.ErrDamaged, maxDocuments>>20)
}

// Parallel calls do for each i from 0 to n-1, at most limit at the same time. It returns the first error, after which it
// cancels the context and starts no more calls.
func Parallel(ctx context.Context, limit, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(limit)
	for i := range n {
		group.Go(func() error {
			err := ctx.Err()
			if err != nil {
				return err
			}
			return do(ctx, i)
		})
	}
	return group.Wait()
}
