package records

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
)

// Bounds on the memory of one catalog, whatever an attacker has put into the store. docs/stores.md documents them.
const (
	maxDocuments = 64 << 20 // bytes of all manifests, proofs and pins in memory
	MaxListed    = 500_000  // objects of a cluster's backups; in its log, consecutive segments count as one
)

// TooMany returns the error for a listing of prefix with more than MaxListed objects.
func TooMany(prefix string) error {
	return fmt.Errorf("there are more than %d objects below %s: remove what dr has not written", MaxListed, prefix)
}

// Allowance counts the bytes of documents that may still be kept in memory. A nil Allowance is unlimited. It is safe for
// concurrent use.
type Allowance struct{ left atomic.Int64 }

// NewAllowance returns the Allowance for one catalog.
func NewAllowance() *Allowance {
	a := &Allowance{}
	a.left.Store(maxDocuments)
	return a
}

// Take takes the size of a document, in bytes, and reports whether that much was left.
func (a *Allowance) Take(size int64) bool {
	if a == nil {
		return true
	}
	size = min(size, document.MaxKind) // larger documents are not read
	if a.left.Add(-size) >= 0 {
		return true
	}
	a.left.Add(size)
	return false
}

// Return gives back the size of a document that is not kept.
func (a *Allowance) Return(size int64) {
	if a != nil {
		a.left.Add(min(size, document.MaxKind))
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
