package backup_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

// hanging is a Bucket whose nth Put reads some bytes and then hangs until its ctx ends.
type hanging struct {
	storage.Bucket
	mu    sync.Mutex
	nth   int
	after int64 // bytes
}

func (h *hanging) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	h.mu.Lock()
	h.nth--
	hangs := h.nth == 0
	h.mu.Unlock()
	if !hangs {
		return h.Bucket.Put(ctx, key, r, o)
	}
	_, _ = io.CopyN(io.Discard, r, h.after)
	<-ctx.Done()
	return storage.Object{}, ctx.Err()
}

// TestRunIntoSeveralOneStuck checks that a store that hangs, at any stage, is excluded with Any and ends the backup
// with All.
func TestRunIntoSeveralOneStuck(t *testing.T) {
	for name, stuck := range map[string]func(storage.Bucket) storage.Bucket{
		"asked for backups": func(b storage.Bucket) storage.Bucket { return delayed(b, storagetest.VerbList, 1) },
		"asked for a name":  func(b storage.Bucket) storage.Bucket { return delayed(b, storagetest.VerbList, 2) },
		"first byte":        func(b storage.Bucket) storage.Bucket { return &hanging{Bucket: b, nth: 1} },
		"in the middle":     func(b storage.Bucket) storage.Bucket { return &hanging{Bucket: b, nth: 1, after: 1 << 20} },
		"at the end":        func(b storage.Bucket) storage.Bucket { return &hanging{Bucket: b, nth: 1, after: 1 << 30} },
		"manifest":          func(b storage.Bucket) storage.Bucket { return &hanging{Bucket: b, nth: 2} },
	} {
		for _, require := range []backup.Require{backup.All, backup.Any} {
			t.Run(name+" "+string(require), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					in := memories(3)
					seen := places{in[0], stuck(in[1]), in[2]}
					r, _ := request(t)
					r.Require, r.Patience = require, 3*time.Second
					l := &listener{}
					started := time.Now()
					result, err := backup.RunOfStream(t.Context(), database(2<<20), seen.stores(t), r, l.report)
					waited := time.Since(started)
					if waited != r.Patience {
						t.Errorf("waited %s", waited)
					}
					switch {
					case require == backup.Any:
						if err != nil {
							t.Fatal(err)
						}
						wantOutcomes(t, name, result, 3, 1)
						l.wantWarnings(t, nameOf(1))
						wantNothing(t, open(t, in[0]), result.ID)
						wantNothing(t, open(t, in[2]), result.ID)
					case name == "manifest":
						if !errors.Is(err, backup.ErrPartial) || !strings.Contains(err.Error(), nameOf(1)) {
							t.Errorf("error %v", err)
						}
						wantOutcomes(t, name, result, 3, 1)
					default:
						if err == nil || !strings.Contains(err.Error(), nameOf(1)) {
							t.Errorf("error %v", err)
						}
						wantNothing(t, open(t, in[0]))
						wantNothing(t, open(t, in[2]))
					}
					wantNothing(t, open(t, in[1]))
				})
			})
		}
	}
}

func delayed(b storage.Bucket, verb storagetest.Verb, nth int) storage.Bucket {
	f := storagetest.Faulty(b)
	f.On(verb).Nth(nth).Delay(time.Hour)
	return f
}

// slow is a Bucket whose Puts read a little at a time, with pauses.
type slow struct{ storage.Bucket }

func (s slow) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	return s.Bucket.Put(ctx, key, slowReader{r}, o)
}

type slowReader struct{ r io.Reader }

func (s slowReader) Read(p []byte) (int, error) {
	time.Sleep(40 * time.Millisecond)
	return s.r.Read(p[:min(len(p), 4<<10)])
}

// TestRunIntoSeveralOneSlow checks that a slow store is never excluded.
func TestRunIntoSeveralOneSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := memories(3)
		r, _ := request(t)
		r.Require, r.Patience = backup.Any, 3*time.Second // for 256 KiB, which take most of it
		l := &listener{}
		started := time.Now()
		to := places{in[0], slow{in[1]}, in[2]}.stores(t)
		result, err := backup.RunOfStream(t.Context(), database(4<<20), to, r, l.report)
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(started)
		if took < 10*r.Patience {
			t.Fatalf("it took %s: not slow enough to show anything", took)
		}
		wantOutcomes(t, "slow", result, 3)
		l.wantWarnings(t)
		diff := cmp.Diff(objects(t, in[0]), objects(t, in[1]))
		if diff != "" {
			t.Error("the slow one has other bytes")
		}
	})
}
