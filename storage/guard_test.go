package storage_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

// hanging is a bucket that does not answer until release is closed. A deaf one also ignores contexts.
type hanging struct {
	storage.Bucket
	deaf    bool
	release chan struct{}
	asked   atomic.Int64
}

func (h *hanging) wait(ctx context.Context) error {
	h.asked.Add(1)
	if h.deaf {
		<-h.release
		return nil
	}
	select {
	case <-h.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *hanging) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	err := h.wait(ctx)
	if err != nil {
		return storage.Object{}, err
	}
	return h.Bucket.Put(ctx, key, r, o)
}

func (h *hanging) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	err := h.wait(ctx)
	if err != nil {
		return nil, storage.Object{}, err
	}
	return h.Bucket.Open(ctx, key, o)
}

func (h *hanging) Stat(ctx context.Context, key string) (storage.Object, error) {
	err := h.wait(ctx)
	if err != nil {
		return storage.Object{}, err
	}
	return h.Bucket.Stat(ctx, key)
}

func (h *hanging) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		err := h.wait(ctx)
		if err != nil {
			yield(storage.Object{}, err)
			return
		}
		h.Bucket.List(ctx, o)(yield)
	}
}

func (h *hanging) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	err := h.wait(ctx)
	if err != nil {
		return err
	}
	return h.Bucket.Delete(ctx, key, o)
}

// calls has every method.
var calls = map[string]func(ctx context.Context, b storage.Bucket) error{
	"put": func(ctx context.Context, b storage.Bucket) error {
		_, err := b.Put(ctx, "a", strings.NewReader("x"), storage.PutOptions{})
		return err
	},
	"open": func(ctx context.Context, b storage.Bucket) error {
		rc, _, err := b.Open(ctx, "a", storage.OpenOptions{})
		if err == nil {
			rc.Close()
		}
		return err
	},
	"stat": func(ctx context.Context, b storage.Bucket) error {
		_, err := b.Stat(ctx, "a")
		return err
	},
	"list": func(ctx context.Context, b storage.Bucket) error {
		for _, err := range b.List(ctx, storage.ListOptions{}) {
			return err
		}
		return nil
	},
	"delete": func(ctx context.Context, b storage.Bucket) error {
		return b.Delete(ctx, "a", storage.DeleteOptions{})
	},
}

// TestGuardEndsHangingCalls checks that each call to a hanging store ends in time, even if the call ignores its context.
// After a few such calls the store gets no requests, and it is used again once it answers.
func TestGuardEndsHangingCalls(t *testing.T) {
	for name, call := range calls {
		for _, deaf := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				h := &hanging{Bucket: mem.New(), deaf: deaf, release: make(chan struct{})}
				_, err := h.Bucket.Put(t.Context(), "a", strings.NewReader("x"), storage.PutOptions{})
				if err != nil {
					t.Fatal(err)
				}
				g := storage.NewGuard(func(context.Context) (storage.Bucket, error) { return h, nil }, guardOptions)
				began := time.Now()
				for range 100 {
					err := call(t.Context(), g)
					if !errors.Is(err, storage.ErrNoAnswer) {
						t.Fatalf("%s, deaf %v: %v", name, deaf, err)
					}
				}
				took := time.Since(began)
				if h.asked.Load() != 3 || took > 4*time.Minute {
					t.Errorf("%s, deaf %v: 100 calls asked %d times in %s", name, deaf, h.asked.Load(), took)
				}
				close(h.release)
				time.Sleep(guardOptions.Rest)
				err = call(t.Context(), g)
				if err != nil {
					t.Errorf("%s, deaf %v: it answers again, and the call gives %v", name, deaf, err)
				}
			})
		}
	}
}

// TestGuardAbandonsFewCalls checks that a deaf store holds at most Most calls, and that new calls do not wait for them.
func TestGuardAbandonsFewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{Bucket: mem.New(), deaf: true, release: make(chan struct{})}
		g := storage.NewGuard(func(context.Context) (storage.Bucket, error) { return h, nil }, guardOptions)
		failed := make(chan error)
		for range 2000 {
			go func() { failed <- calls["stat"](t.Context(), g) }()
		}
		began := time.Now()
		for range 2000 {
			err := <-failed
			if !errors.Is(err, storage.ErrNoAnswer) {
				t.Error(err)
			}
		}
		took := time.Since(began)
		if int(h.asked.Load()) > guardOptions.Most || took > 2*guardOptions.Limit {
			t.Errorf("200 calls at once asked %d times and took %s", h.asked.Load(), took)
		}
		close(h.release)
	})
}

// TestGuardCutsBodies checks that a body and a listing that stop in the middle end in time.
func TestGuardCutsBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := storage.NewGuard(func(context.Context) (storage.Bucket, error) { return stopping{mem.New(), release}, nil }, guardOptions)
		rc, _, err := g.Open(t.Context(), "a", storage.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(rc)
		rc.Close()
		if string(data) != "half" || !errors.Is(err, storage.ErrNoAnswer) {
			t.Errorf("read %q, %v", data, err)
		}
		n := 0
		for _, err = range g.List(t.Context(), storage.ListOptions{}) {
			n++
		}
		if n != 2 || !errors.Is(err, storage.ErrNoAnswer) {
			t.Errorf("%d listed, %v", n, err)
		}
		close(release)
	})
}

// stopping sends half of the requested bytes or objects, and then nothing.
type stopping struct {
	storage.Bucket
	release chan struct{}
}

func (s stopping) Open(context.Context, string, storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	return io.NopCloser(io.MultiReader(strings.NewReader("half"), s)), storage.Object{Key: "a", Size: 8}, nil
}

func (s stopping) Read([]byte) (int, error) {
	<-s.release
	return 0, io.EOF
}

func (s stopping) List(context.Context, storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		if yield(storage.Object{Key: "a"}, nil) {
			<-s.release
		}
	}
}

// TestGuardNeverCutsAListingShort cancels a listing halfway: it ends with an error, since a shorter one would look like a store that has
// lost objects.
func TestGuardNeverCutsAListingShort(t *testing.T) {
	bucket := mem.New()
	const objects = 300
	for i := range objects {
		_, err := bucket.Put(t.Context(), fmt.Sprintf("key-%03d", i), strings.NewReader("x"), storage.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2000 {
		guard := storage.NewGuard(func(context.Context) (storage.Bucket, error) { return bucket, nil }, storage.GuardOptions{Limit: time.Minute, Most: 4, Failures: 3, Rest: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		var failure error
		for _, err := range guard.List(ctx, storage.ListOptions{}) {
			n++
			if n == objects/2 {
				cancel()
			}
			failure = err
		}
		cancel()
		if n < objects && !errors.Is(failure, context.Canceled) {
			t.Fatalf("the listing ended after %d of %d objects: %v", n, objects, failure)
		}
	}
}

// TestGuardNamesTheLastFailure checks that a call whose tries fail until the limit, or until its context ends, returns the
// reason, and that the reason stays while the store gets no requests.
func TestGuardNamesTheLastFailure(t *testing.T) {
	for verb, call := range calls {
		if verb == "put" { // it is never retried
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			f := storagetest.Faulty(mem.New())
			f.On(storagetest.Verb(verb)).Always().Fail(errStore)
			g := guardOverRetry(f)
			for i := range guardOptions.Failures + 1 {
				began := time.Now()
				wantFailing(t, verb, call(t.Context(), g))
				rests := i == guardOptions.Failures
				if rests != (time.Since(began) < guardOptions.Limit) {
					t.Errorf("%s: call %d took %s", verb, i, time.Since(began))
				}
			}
			time.Sleep(guardOptions.Rest)
			ctx, cancel := context.WithTimeout(t.Context(), guardOptions.Limit/2)
			defer cancel()
			err := call(ctx, g)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errStore) {
				t.Errorf("%s: error %v, want both why it ended and what had failed", verb, err)
			}
		})
	}
}

// TestGuardNamesTheFailureThatPrecedesSilence checks that a store which fails once and then hangs is not said to be silent.
func TestGuardNamesTheFailureThatPrecedesSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storagetest.Faulty(mem.New())
		f.On(storagetest.VerbStat).Fail(errStore)
		f.On(storagetest.VerbStat).Nth(2).Delay(time.Hour)
		wantFailing(t, "stat", calls["stat"](t.Context(), guardOverRetry(f)))
	})
}

// TestGuardNamesTheFailureOfABody is TestGuardNamesTheLastFailure for bodies and listings that are cut.
func TestGuardNamesTheFailureOfABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storagetest.Faulty(mem.New())
		put(t, f, "a", "content")
		put(t, f, "b", "content")
		g := guardOverRetry(f)
		f.On(storagetest.VerbOpen).Cut(4, errStore)
		f.On(storagetest.VerbOpen).Nth(2).Always().Fail(errStore)
		rc, _, err := g.Open(t.Context(), "a", storage.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(rc)
		rc.Close()
		if string(data) != "cont" {
			t.Errorf("read %q", data)
		}
		wantFailing(t, "read", err)
		f.On(storagetest.VerbList).Cut(1, errStore)
		f.On(storagetest.VerbList).Nth(2).Always().Fail(errStore)
		n := 0
		for _, err = range g.List(t.Context(), storage.ListOptions{}) {
			n++
		}
		if n != 2 {
			t.Errorf("%d listed", n)
		}
		wantFailing(t, "list", err)
	})
}

func guardOverRetry(b storage.Bucket) *storage.Guard {
	patient := storage.WithRetry(b, storage.RetryPolicy{Attempts: 1000, Base: time.Second, Max: time.Hour})
	return storage.NewGuard(func(context.Context) (storage.Bucket, error) { return patient, nil }, guardOptions)
}

func wantFailing(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, storage.ErrNoAnswer) || fault.KindOf(err) != fault.Unreachable {
		t.Errorf("%s: error %v, want ErrNoAnswer", what, err)
		return
	}
	if strings.Contains(err.Error(), "does not answer") || !strings.Contains(err.Error(), errStore.Error()) {
		t.Errorf("%s: error %v, want that the store fails, and how", what, err)
	}
}
