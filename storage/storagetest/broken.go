package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
)

// broken checks the central promise: after any failure of a source, nothing of it is ever visible.
func (s suite) broken(t *testing.T) {
	for _, part := range s.o.PartSizes {
		for _, c := range brokenSources(part) {
			t.Run(fmt.Sprintf("part=%d/%s", part, c.name), func(t *testing.T) { s.brokenOne(t, c) })
		}
	}
}

// brokenSource is one way to fail. make may use cancel, which ends the context of the Put.
type brokenSource struct {
	name string
	make func(ctx context.Context, cancel context.CancelFunc) io.Reader
	want error
}

func brokenSources(part int) []brokenSource {
	var all []brokenSource
	for _, n := range []int{0, 1, part / 2, part - 1, part, part + 1, part + part/2, 2 * part} {
		all = append(all, brokenAt(n, errBroken))
	}
	// Errors that a careless copy takes for the end: io.ReadFull returns the first one for a short last part, and
	// errors.Is finds io.EOF in the second.
	for _, n := range []int{0, part / 2, part, part + 1} {
		all = append(all, brokenAt(n, io.ErrUnexpectedEOF), brokenAt(n, fmt.Errorf("%w: no digest", io.EOF)))
	}
	for i := 0; i < len(all); i += 3 {
		all = append(all, together(all[i]))
	}
	for _, n := range []int{0, part / 2, part, part + 1} {
		all = append(all, cancelled(n, part)...)
	}
	return append(all, brokenSource{"veto instead of the end", func(context.Context, context.CancelFunc) io.Reader {
		return io.MultiReader(bytes.NewReader(content(1, part+1)), &source{err: errBroken})
	}, errBroken})
}

func brokenAt(n int, err error) brokenSource {
	return brokenSource{
		name: fmt.Sprintf("%v after %d", err, n),
		make: func(context.Context, context.CancelFunc) io.Reader { return &source{data: content(1, n), err: err} },
		want: err,
	}
}

// together returns a source whose error comes with the last bytes.
func together(c brokenSource) brokenSource {
	return brokenSource{
		name: c.name + " together with the last bytes",
		make: func(ctx context.Context, cancel context.CancelFunc) io.Reader {
			src := c.make(ctx, cancel).(*source)
			src.together = true
			return src
		},
		want: c.want,
	}
}

// cancelled returns sources whose Put is cancelled after n bytes.
func cancelled(n, part int) []brokenSource {
	return []brokenSource{{
		name: fmt.Sprintf("cancelled after %d and the source goes on", n),
		make: func(_ context.Context, cancel context.CancelFunc) io.Reader {
			return &passing{r: bytes.NewReader(content(1, n+part)), at: n, hook: cancel}
		},
		want: context.Canceled,
	}, {
		name: fmt.Sprintf("cancelled after %d and the source never ends", n),
		make: func(_ context.Context, cancel context.CancelFunc) io.Reader {
			return &passing{r: &endless{left: 100 * part}, at: n, hook: cancel}
		},
		want: context.Canceled,
	}, {
		name: fmt.Sprintf("cancelled as the source ends after %d", n),
		make: func(_ context.Context, cancel context.CancelFunc) io.Reader {
			return &source{data: content(1, n), err: io.EOF, before: cancel}
		},
		want: context.Canceled,
	}, {
		name: fmt.Sprintf("cancelled while the source hangs after %d", n),
		make: func(ctx context.Context, cancel context.CancelFunc) io.Reader {
			src := newStuck(ctx, content(1, n))
			go func() { // ends with the source
				<-src.at
				cancel()
			}()
			return src
		},
		want: context.Canceled,
	}}
}

func (s suite) brokenOne(t *testing.T, c brokenSource) {
	t.Run("new", func(t *testing.T) {
		b := s.open(t)
		failPut(t, b, c, storage.PutOptions{})
		wantAbsent(t, b, "dir/key")
		wantGoodPut(t, b)
	})
	t.Run("if absent", func(t *testing.T) {
		b := s.open(t)
		failPut(t, b, c, storage.PutOptions{IfAbsent: true})
		wantAbsent(t, b, "dir/key")
		wantGoodPut(t, b)
	})
	t.Run("replace", func(t *testing.T) {
		b := s.open(t)
		old := put(t, b, "dir/key", content(2, 100))
		failPut(t, b, c, storage.PutOptions{})
		wantSame(t, b, old, content(2, 100))
		wantGoodPut(t, b)
	})
}

func failPut(t *testing.T, b storage.Bucket, c brokenSource, o storage.PutOptions) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	obj, err := b.Put(ctx, "dir/key", c.make(ctx, cancel), o)
	if err == nil {
		t.Fatalf("Put has stored %+v", obj)
	}
	if !errors.Is(err, c.want) {
		t.Fatalf("Put: error %v, want one that is %v", err, c.want)
	}
	wantNoLeftovers(t, b)
}

func wantGoodPut(t *testing.T, b storage.Bucket) {
	t.Helper()
	p := content(3, 1000)
	wantSame(t, b, put(t, b, "dir/key", p), p)
	wantNoLeftovers(t, b)
}
