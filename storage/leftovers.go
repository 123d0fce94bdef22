package storage

import (
	"context"
	"iter"
)

// Sweeper is a Bucket in which a killed Put leaves pieces that List does not show, such as temporary files or
// unfinished multipart uploads.
type Sweeper interface {
	// Leftovers yields the pieces that belong to keys with prefix, in any order. The store chooses a piece's Key; its
	// ModTime is the time of the last write to it. Pieces of running Puts are included: only their age distinguishes
	// them.
	Leftovers(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Sweep removes one piece that Leftovers has yielded. A missing piece is no error. Data that a running Put sends
	// may reappear, and then another Leftovers shows it.
	Sweep(ctx context.Context, piece Object) error
}

// AsSweeper returns the Sweeper in b or below its decorators, as far as these have an Unwrap method and so do not
// change keys. It reports whether there is one.
func AsSweeper(b Bucket) (Sweeper, bool) {
	for {
		s, ok := b.(Sweeper)
		if ok {
			return s, true
		}
		u, ok := b.(interface{ Unwrap() Bucket })
		if !ok {
			return nil, false
		}
		b = u.Unwrap()
	}
}
