package storage_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

var errStore = errors.New("the store is away")

// retrying runs test in a synctest bubble on a store with faults, under a policy of three tries with pauses of a
// second.
func retrying(t *testing.T, test func(t *testing.T, f *storagetest.Faults, b storage.Bucket)) {
	synctest.Test(t, func(t *testing.T) {
		f := storagetest.Faulty(mem.New())
		test(t, f, storage.WithRetry(f, storage.RetryPolicy{Attempts: 3, Base: time.Second, Max: time.Second}))
	})
}

func verbs(ctx context.Context, b storage.Bucket) map[storagetest.Verb]func() error {
	return map[storagetest.Verb]func() error{
		storagetest.VerbStat: func() error { _, err := b.Stat(ctx, "key"); return err },
		storagetest.VerbOpen: func() error { _, err := read(ctx, b, storage.OpenOptions{}); return err },
		storagetest.VerbList: func() error {
			for _, err := range b.List(ctx, storage.ListOptions{}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		storagetest.VerbDelete: func() error { return b.Delete(ctx, "key", storage.DeleteOptions{}) },
	}
}

func TestRetryRepeatsEachVerb(t *testing.T) {
	retrying(t, func(t *testing.T, f *storagetest.Faults, b storage.Bucket) {
		for verb, call := range verbs(t.Context(), b) {
			put(t, b, "key", "content")
			before := f.Calls(verb)
			f.On(verb).Fail(errStore)
			f.On(verb).Nth(2).FailLate(errStore)
			err := call()
			if err != nil {
				t.Errorf("%s: %v", verb, err)
			}
			n := f.Calls(verb) - before
			if n != 3 {
				t.Errorf("%s was called %d times, want 3", verb, n)
			}
		}
	})
}

// TestRetryIsBoundInTime checks that a store that fails slowly gets few tries.
func TestRetryIsBoundInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := storage.RetryPolicy{Attempts: 9, Base: time.Second, Max: time.Second, Total: time.Minute}
		f := storagetest.Faulty(mem.New())
		b := storage.WithRetry(f, policy)
		put(t, b, "key", "content")
		for verb, call := range verbs(t.Context(), b) {
			f.On(verb).Always().Delay(40 * time.Second).Fail(errStore)
			err := call()
			if !errors.Is(err, errStore) {
				t.Errorf("%s: %v", verb, err)
			}
			n := f.Calls(verb)
			if n != 2 {
				t.Errorf("%s was called %d times, want twice: the second ends after more than a minute", verb, n)
			}
		}
	})
}

func TestRetryGivesUp(t *testing.T) {
	retrying(t, func(t *testing.T, f *storagetest.Faults, b storage.Bucket) {
		put(t, b, "key", "content")
		for verb, call := range verbs(t.Context(), b) {
			f.On(verb).Always().Fail(errStore)
			err := call()
			if !errors.Is(err, errStore) || !strings.Contains(err.Error(), "3 tries") {
				t.Errorf("%s: %v", verb, err)
			}
			n := f.Calls(verb)
			if n != 3 {
				t.Errorf("%s was called %d times, want 3", verb, n)
			}
		}
	})
}

func TestRetryNotPermanentErrors(t *testing.T) {
	for _, permanent := range []error{
		storage.ErrNotExist, storage.ErrLocked, storage.ErrDenied, storage.ErrRange, storage.ErrUnsupported,
		storage.ErrKey, storage.ErrNoAnswer, context.Canceled,
	} {
		retrying(t, func(t *testing.T, f *storagetest.Faults, b storage.Bucket) {
			for verb, call := range verbs(t.Context(), b) {
				f.On(verb).Always().Fail(fmt.Errorf("wrapped: %w", permanent))
				err := call()
				if !errors.Is(err, permanent) {
					t.Errorf("%s: %v", verb, err)
				}
				n := f.Calls(verb)
				if n != 1 {
					t.Errorf("%s with %v was called %d times", verb, permanent, n)
				}
			}
		})
	}
}

func TestRetryNeverPut(t *testing.T) {
	retrying(t, func(t *testing.T, f *storagetest.Faults, b storage.Bucket) {
		f.On(storagetest.VerbPut).Fail(errStore)
		_, err := b.Put(t.Context(), "key", strings.NewReader("content"), storage.PutOptions{})
		if !errors.Is(err, errStore) || f.Calls(storagetest.VerbPut) != 1 {
			t.Errorf("%v after %d calls", err, f.Calls(storagetest.VerbPut))
		}
	})
}

func TestRetryEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storagetest.Faulty(mem.New())
		b := storage.WithRetry(f, storage.RetryPolicy{Attempts: 1000, Base: time.Minute, Max: time.Hour})
		f.On(storagetest.VerbStat).Always().Fail(errStore)
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		_, err := b.Stat(ctx, "key")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errStore) {
			t.Errorf("error %v, want both why it ended and what had failed", err)
		}
		// Pauses double up to an hour and are at least half as long: more calls are a storm, fewer a sleep.
		n := f.Calls(storagetest.VerbStat)
		if n < 24 || n > 60 {
			t.Errorf("%d calls in a day", n)
		}
	})
}

func TestRetryStreamResumes(t *testing.T) {
	const text = "0123456789"
	ranges := []storage.OpenOptions{{}, {Offset: 3}, {Length: 5}, {Offset: 2, Length: 7}, {Offset: 9, Length: 40}}
	for _, o := range ranges {
		for at := range len(text) {
			retrying(t, func(t *testing.T, f *storagetest.Faults, b storage.Bucket) {
				put(t, b, "key", text)
				f.On(storagetest.VerbOpen).Cut(at, errStore)
				f.On(storagetest.VerbOpen).Nth(2).Fail(errStore)
				want := text[o.Offset:]
				if o.Length > 0 {
					want = want[:min(int(o.Length), len(want))]
				}
				p, err := read(t.Context(), b, o)
				// An error right after the last byte is no cut but a veto.
				if at == len(want) {
					if !errors.Is(err, errStore) {
						t.Errorf("%+v vetoed at %d: %v", o, at, err)
					}
					return
				}
				if err != nil || string(p) != want {
					t.Errorf("%+v cut at %d: %q, %v, want %q", o, at, p, err, want)
				}
			})
		}
	}
}

// TestRetryStreamWithProgress checks that a stream may be cut more often than there are tries, as long as bytes arrive.
func TestRetryStreamWithProgress(t *testing.T) {
	retrying(t, func(t *testing.T, f *storagetest.Faults, b storage.Bucket) {
		put(t, b, "key", strings.Repeat("x", 50))
		f.On(storagetest.VerbOpen).Always().Cut(1, errStore)
		// The last byte is followed by the cut, not by the end.
		p, err := read(t.Context(), b, storage.OpenOptions{})
		if len(p) != 50 || !errors.Is(err, errStore) {
			t.Errorf("%d bytes, %v", len(p), err)
		}
	})
}

func TestRetryStreamGivesUp(t *testing.T) {
	retrying(t, func(t *testing.T, f *storagetest.Faults, b storage.Bucket) {
		put(t, b, "key", "0123456789")
		f.On(storagetest.VerbOpen).Cut(4, errStore)
		f.On(storagetest.VerbOpen).Nth(2).Always().Fail(errStore)
		p, err := read(t.Context(), b, storage.OpenOptions{})
		if string(p) != "0123" || !errors.Is(err, errStore) || !strings.Contains(err.Error(), "byte 4") {
			t.Errorf("%q, %v", p, err)
		}
	})
}

// TestRetryStreamOfReplaced checks that the rest belongs to the object that was opened, or is missing.
func TestRetryStreamOfReplaced(t *testing.T) {
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			f := storagetest.Faulty(s.open(t))
			b := storage.WithRetry(f, storage.RetryPolicy{Attempts: 3})
			put(t, b, "key", "0123456789")
			f.On(storagetest.VerbOpen).Cut(4, errStore)
			r, _, err := b.Open(t.Context(), "key", storage.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			put(t, b, "key", "abcdefghij")
			p, err := io.ReadAll(r)
			_, isFile := f.Unwrap().(*file.Bucket)
			if isFile && (string(p) != "0123" || !errors.Is(err, storage.ErrNotExist)) {
				t.Errorf("%q, %v, want 0123 and ErrNotExist", p, err)
			}
			if !isFile && (string(p) != "0123456789" || err != nil) {
				t.Errorf("%q, %v, want the old content", p, err)
			}
		})
	}
}

func TestRetryListResumes(t *testing.T) {
	retrying(t, func(t *testing.T, f *storagetest.Faults, b storage.Bucket) {
		for _, key := range []string{"a", "b", "c", "d"} {
			put(t, b, key, "")
		}
		f.On(storagetest.VerbList).Cut(2, errStore)
		f.On(storagetest.VerbList).Nth(2).Fail(errStore)
		f.On(storagetest.VerbList).Nth(3).Cut(1, errStore)
		got := keys(t, b, storage.ListOptions{})
		if got != "a b c d" {
			t.Errorf("List = %q", got)
		}
		seq := b.List(t.Context(), storage.ListOptions{After: "b"})
		for range 2 {
			n := 0
			for range seq {
				n++
			}
			if n != 2 {
				t.Errorf("%d objects behind b", n)
			}
		}
	})
}
