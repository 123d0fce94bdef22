package storage

import (
	"context"
	"iter"
)

// Sweeper is a Bucket in which a killed Put leaves pieces that List does not show, such as temporary files or unfinished
// multipart uploads.
type Sweeper interface {
	// Leftovers yields the pieces that belong to keys with prefix, in any order. A piece's Key is of the store's own
	// making, its ModTime is when it was last written to. Pieces of Puts that are still running are among them: only
	// their age tells them apart.
	Leftovers(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Sweep removes one piece that Leftovers has yielded. One that is gone already is no error. What a running Put sends
	// may come back: a second Leftovers shows it.
	Sweep(ctx context.Context, piece Object) error
}

// AsSweeper finds the Sweeper in b or below its decorators (those that have an Unwrap method and leave keys alone).
func AsSweeper(b Bucket) (Sweeper, bool) {
	for {
		if s, ok := b.(Sweeper); ok {
			return s, true
		}
		u, ok := b.(interface{ Unwrap() Bucket })
		if !ok {
			return nil, false
		}
		b = u.Unwrap()
	}
}
