package records

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
)

// What one catalog takes of memory at most, whatever somebody has put into the store. docs/stores.md names these bounds.
const (
	maxDocuments = 64 << 20 // bytes of all manifests, proofs and pins that are kept
	MaxListed    = 500_000  // objects of the backups of a cluster, and as many of its log beside segments that follow each other
)

// errTooMany is the error of a listing that is longer than any that dr makes.
func TooMany(prefix string) error {
	return fmt.Errorf("there are more than %d objects below %s: remove what dr has not written", MaxListed, prefix)
}

// allowance is how many bytes of documents may still be kept; nil: any number.
type Allowance struct{ left atomic.Int64 }

func NewAllowance() *Allowance {
	a := &Allowance{}
	a.left.Store(maxDocuments)
	return a
}

// take takes the bytes of a document, and reports whether they were left.
func (a *Allowance) Take(size int64) bool {
	if a == nil {
		return true
	}
	size = min(size, document.MaxKind) // what is larger is not read
	if a.left.Add(-size) >= 0 {
		return true
	}
	a.left.Add(size)
	return false
}

// giveBack returns the bytes of a document that is not kept.
func (a *Allowance) Return(size int64) {
	if a != nil {
		a.left.Add(min(size, document.MaxKind))
	}
}

// notRead is why a document is not read.
func NotRead(key string) error {
	return fmt.Errorf("%s: %w: not read: the documents of this cluster before it have more than %d MiB", key, catalog.ErrDamaged, maxDocuments>>20)
}

// atOnce does n things, up to limit of them at a time, and returns the first error.
func Parallel(ctx context.Context, limit, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(limit)
	for i := range n {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return do(ctx, i)
		})
	}
	return group.Wait()
}
