package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/storage"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
)

var (
	errSource = errors.New("the source is broken")
	errPart   = errors.New("the part is lost")
	errCommit = errors.New("the store is broken")
)

var small = storage.Parts{Size: 100, Whole: 50, Workers: 3, Max: 1000}

// fakeStore receives one object in parts, in memory, and records the pump's calls.
type fakeStore struct {
	part     func(ctx context.Context, n int) error // a side effect of each part
	whole    error
	begin    error
	commit   error
	abort    error
	abortCtx error // ctx.Err() in Abort

	mu         sync.Mutex
	parts      map[int][]byte
	buffers    map[*byte]bool
	busy, most int
	begun      bool
	aborted    int
	stored     []byte
	isStored   bool
}

func (f *fakeStore) Whole(_ context.Context, p []byte) (storage.Object, error) {
	if f.whole == nil {
		f.store(p)
	}
	return storage.Object{Size: int64(len(p))}, f.whole
}

func (f *fakeStore) store(p []byte) { f.stored, f.isStored = bytes.Clone(p), true }

func (f *fakeStore) Begin(context.Context) (storage.Upload, error) {
	f.begun = f.begin == nil
	f.parts, f.buffers = map[int][]byte{}, map[*byte]bool{}
	return f, f.begin
}

func (f *fakeStore) Part(ctx context.Context, n int, p []byte) error {
	f.enter(p)
	defer f.leave()
	if f.part != nil {
		err := f.part(ctx, n)
		if err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.parts[n] != nil {
		return fmt.Errorf("part %d comes twice", n)
	}
	f.parts[n] = bytes.Clone(p)
	return nil
}

func (f *fakeStore) enter(p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy++
	f.most = max(f.most, f.busy)
	f.buffers[&p[0]] = true
}

func (f *fakeStore) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy--
}

func (f *fakeStore) Commit(_ context.Context, n int) (storage.Object, error) {
	if f.commit != nil {
		return storage.Object{}, f.commit
	}
	var all []byte
	for i := 1; i <= n; i++ {
		all = append(all, f.parts[i]...)
	}
	if f.busy > 0 || len(f.parts) != n {
		return storage.Object{}, fmt.Errorf("commit of %d parts with %d there and %d on their way", n, len(f.parts), f.busy)
	}
	f.store(all)
	return storage.Object{Size: int64(len(all))}, nil
}

func (f *fakeStore) Abort(ctx context.Context) error {
	f.aborted++
	f.abortCtx = ctx.Err()
	return f.abort
}

// wantNothing fails unless a Put has failed with want and has cleaned up.
func (f *fakeStore) wantNothing(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
	if f.isStored {
		t.Errorf("%d bytes are stored", len(f.stored))
	}
	if f.begun != (f.aborted == 1) || f.aborted > 1 {
		t.Errorf("begun: %v, aborted %d times", f.begun, f.aborted)
	}
	if f.abortCtx != nil {
		t.Errorf("aborted by a dead ctx: %v", f.abortCtx)
	}
	if f.busy > 0 {
		t.Errorf("%d parts are still on their way", f.busy)
	}
}

func noiseOf(n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n)}).Read(p)
	return p
}

// onceBroken returns its error once and io.EOF afterwards, as a careless reader does. After the end it must not be read
// again.
type onceBroken struct {
	t        *testing.T
	data     []byte
	err      error
	together bool // with the last bytes
	told     bool
}

func (r *onceBroken) Read(p []byte) (int, error) {
	if r.told {
		r.t.Error("the source was read on after it had ended")
		return 0, io.EOF
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	if len(r.data) > 0 || n > 0 && !r.together {
		return n, nil
	}
	r.told = true
	return n, r.err
}

var atEdges = []int{0, 1, 49, 50, 51, 99, 100, 101, 199, 200, 201, 250, 300, 400, 1000}

func TestPartsStoreAll(t *testing.T) {
	for _, n := range atEdges {
		for _, together := range []bool{false, true} {
			f := &fakeStore{}
			src := &onceBroken{t: t, data: noiseOf(n), err: io.EOF, together: together}
			obj, err := storage.PutParts(t.Context(), src, f, small)
			if err != nil || obj.Size != int64(n) || !bytes.Equal(f.stored, noiseOf(n)) || !f.isStored {
				t.Errorf("%d bytes: %+v, %v, %d stored", n, obj, err, len(f.stored))
			}
			if f.begun != (n > small.Whole) || f.aborted > 0 {
				t.Errorf("%d bytes: begun: %v, aborted %d times", n, f.begun, f.aborted)
			}
		}
	}
}

// TestPartsBrokenSource has the error before the first byte, within a part, at a part's end, and with the last byte.
// The reader returns it only once.
func TestPartsBrokenSource(t *testing.T) {
	for _, n := range atEdges {
		for _, together := range []bool{false, true} {
			for _, cause := range []error{errSource, io.ErrUnexpectedEOF, fmt.Errorf("%w: no digest", io.EOF)} {
				t.Run(fmt.Sprintf("%v after %d together=%v", cause, n, together), func(t *testing.T) {
					f := &fakeStore{}
					src := &onceBroken{t: t, data: noiseOf(n), err: cause, together: together}
					_, err := storage.PutParts(t.Context(), src, f, small)
					f.wantNothing(t, err, cause)
				})
			}
		}
	}
}

// TestPartsSourceBeforeEcho checks that a broken source interrupts hanging parts in the end, and that Put returns the
// source's error and not theirs.
func TestPartsSourceBeforeEcho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{part: func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		_, err := storage.PutParts(t.Context(), &onceBroken{t: t, data: noiseOf(150), err: errSource}, f, small)
		f.wantNothing(t, err, errSource)
		if errors.Is(err, context.Canceled) {
			t.Errorf("%v tells of the echo", err)
		}
	})
}

// TestPartsFinish checks that a part in flight may finish after the source has broken, and that no part is in flight
// during the abort.
func TestPartsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{part: func(ctx context.Context, _ int) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		_, err := storage.PutParts(t.Context(), &onceBroken{t: t, data: noiseOf(250), err: errSource}, f, small)
		f.wantNothing(t, err, errSource)
		if len(f.parts) != 2 {
			t.Errorf("%d parts have come to their end, want 2", len(f.parts))
		}
	})
}

// forever is an endless reader that counts.
type forever struct{ read int }

func (r *forever) Read(p []byte) (int, error) {
	r.read += len(p)
	return len(p), nil
}

// TestPartsLostPart checks that a failed part stops an endless source.
func TestPartsLostPart(t *testing.T) {
	for _, lost := range []int{1, 2, 7} {
		f := &fakeStore{part: func(_ context.Context, n int) error {
			if n == lost {
				return errPart
			}
			return nil
		}}
		src, parts := &forever{}, small
		parts.Max = 10_000_000 // others may be sent before the failing one
		_, err := storage.PutParts(t.Context(), src, f, parts)
		f.wantNothing(t, err, errPart)
		if src.read >= parts.Max*parts.Size {
			t.Errorf("part %d: the source was read to the limit", lost)
		}
	}
}

// TestPartsLostPartCutsOthers checks that a failed part cancels the others.
func TestPartsLostPartCutsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{part: func(ctx context.Context, n int) error {
			if n == 2 {
				return errPart
			}
			<-ctx.Done()
			return ctx.Err()
		}}
		_, err := storage.PutParts(t.Context(), bytes.NewReader(noiseOf(250)), f, small)
		f.wantNothing(t, err, errPart)
	})
}

// TestPartsLostLastPart checks that the last part may fail long after the source has ended.
func TestPartsLostLastPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{part: func(_ context.Context, n int) error {
			if n == 3 {
				time.Sleep(time.Hour)
				return errPart
			}
			return nil
		}}
		_, err := storage.PutParts(t.Context(), bytes.NewReader(noiseOf(250)), f, small)
		f.wantNothing(t, err, errPart)
	})
}

func TestPartsStoreFails(t *testing.T) {
	for name, f := range map[string]*fakeStore{
		"begin": {begin: errCommit}, "commit": {commit: errCommit}, "commit and abort": {commit: errCommit, abort: errPart},
	} {
		_, err := storage.PutParts(t.Context(), bytes.NewReader(noiseOf(250)), f, small)
		f.wantNothing(t, err, errCommit)
		if f.abort != nil && !errors.Is(err, f.abort) {
			t.Errorf("%s: %v does not tell that parts are left", name, err)
		}
	}
	f := &fakeStore{whole: errCommit}
	_, err := storage.PutParts(t.Context(), bytes.NewReader(noiseOf(20)), f, small)
	f.wantNothing(t, err, errCommit)
}

// TestPartsCancelled cancels at the start, within the first part, between parts, with the last bytes, and while parts
// hang.
func TestPartsCancelled(t *testing.T) {
	for _, n := range []int{0, 20, 100, 101, 250} {
		for _, together := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			f := &fakeStore{}
			src := io.MultiReader(bytes.NewReader(noiseOf(n)), readerFunc(func([]byte) (int, error) {
				cancel()
				return 0, io.EOF
			}))
			if together {
				src = iotest.DataErrReader(src)
			}
			_, err := storage.PutParts(ctx, src, f, small)
			f.wantNothing(t, err, context.Canceled)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		f := &fakeStore{part: func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		_, err := storage.PutParts(ctx, &forever{}, f, small)
		f.wantNothing(t, err, context.DeadlineExceeded)
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestPartsMemory checks that a Put uses at most Workers + 1 buffers and sends at most Workers parts at a time.
func TestPartsMemory(t *testing.T) {
	p := storage.Parts{Size: 1 << 20, Whole: 1 << 10, Workers: 3, Max: 100}
	f := &fakeBusy{buffers: map[*byte]bool{}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	src := io.LimitReader(&forever{}, 50<<20)
	_, err := storage.PutParts(t.Context(), src, f, p)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if len(f.buffers) > p.Workers+1 || f.most > p.Workers {
		t.Errorf("%d buffers and %d parts at a time for %d workers", len(f.buffers), f.most, p.Workers)
	}
	// The first buffer grows to its size; its smaller predecessors are on top.
	took := after.TotalAlloc - before.TotalAlloc
	if took > uint64((p.Workers+2)*p.Size) {
		t.Errorf("%d bytes were allocated for %d workers with %d", took, p.Workers, p.Size)
	}
}

// fakeBusy is a slow Upload that stores nothing.
type fakeBusy struct {
	mu         sync.Mutex
	buffers    map[*byte]bool
	busy, most int
}

func (f *fakeBusy) Whole(context.Context, []byte) (storage.Object, error) {
	return storage.Object{}, nil
}

func (f *fakeBusy) Begin(context.Context) (storage.Upload, error) { return f, nil }

func (f *fakeBusy) Part(_ context.Context, _ int, p []byte) error {
	f.mu.Lock()
	f.busy++
	f.most = max(f.most, f.busy)
	f.buffers[&p[0]] = true
	f.mu.Unlock()
	time.Sleep(time.Millisecond)
	f.mu.Lock()
	f.busy--
	f.mu.Unlock()
	return nil
}

func (f *fakeBusy) Commit(context.Context, int) (storage.Object, error) { return storage.Object{}, nil }

func (f *fakeBusy) Abort(context.Context) error { return nil }

func TestPartsTooMany(t *testing.T) {
	p := storage.Parts{Size: 100, Whole: 50, Workers: 2, Max: 3}
	for n, fits := range map[int]bool{299: true, 300: true, 301: false, 5000: false} {
		f := &fakeStore{}
		_, err := storage.PutParts(t.Context(), bytes.NewReader(noiseOf(n)), f, p)
		if fits && (err != nil || len(f.stored) != n) || !fits && err == nil {
			t.Errorf("%d bytes in 3 parts of 100: %v", n, err)
		}
		if !fits {
			f.wantNothing(t, err, err)
		}
	}
}

// TestPartsProperty checks that any object, in parts of any size, from a reader with any pattern of reads, is stored
// unchanged.
func TestPartsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := storage.Parts{Size: rapid.IntRange(1, 300).Draw(t, "size"), Max: 5000}
		p.Workers = rapid.IntRange(1, 5).Draw(t, "workers")
		p.Whole = rapid.IntRange(0, p.Size).Draw(t, "whole")
		content := noiseOf(rapid.IntRange(0, 2000).Draw(t, "length"))
		src := rapid.SampledFrom([]func(io.Reader) io.Reader{
			func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader,
		}).Draw(t, "reader")(bytes.NewReader(content))
		f := &fakeStore{}
		obj, err := storage.PutParts(context.Background(), src, f, p)
		if err != nil || obj.Size != int64(len(content)) || !bytes.Equal(f.stored, content) {
			t.Fatalf("%+v, %v: %d of %d bytes", obj, err, len(f.stored), len(content))
		}
		for n, part := range f.parts {
			if len(part) != p.Size && n != len(f.parts) {
				t.Fatalf("part %d of %d has %d bytes", n, len(f.parts), len(part))
			}
		}
	})
}

func TestPartsFor(t *testing.T) {
	p := storage.Parts{Size: 8 << 20, Whole: 1 << 20, Workers: 4, Max: 10_000}
	for hint, want := range map[int64]int{
		0: 8 << 20, -1: 8 << 20, 8 << 30: 8 << 20, 70 << 30: 8 << 20, 72 << 30: 9 << 20, 1 << 40: 116 << 20,
	} {
		got := p.For(hint).Size
		if got != want {
			t.Errorf("for %d bytes parts of %d, want %d", hint, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		hint := rapid.Int64Range(0, 1<<45).Draw(t, "hint")
		got := p.For(hint)
		room := int64(got.Size) * int64(got.Max)
		if room < hint+hint/10 {
			t.Fatalf("%d parts of %d are no room for %d and a tenth", got.Max, got.Size, hint)
		}
		most := (hint+hint/10)/10_000 + 1<<20
		if got.Size < p.Size || got.Size > p.Size && (got.Size%(1<<20) != 0 || int64(got.Size) > most) {
			t.Fatalf("for %d bytes parts of %d", hint, got.Size)
		}
		got.Size = p.Size
		if got != p {
			t.Fatalf("more than the size has changed: %+v", got)
		}
	})
}
