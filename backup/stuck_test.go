package backup_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
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

// deaf is a Bucket whose Puts of data take the whole stream and return only when answer is closed, even if their context ends.
type deaf struct {
	storage.Bucket
	answer chan struct{}
}

func (d deaf) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	if !strings.Contains(key, catalog.SnapshotName) {
		return d.Bucket.Put(ctx, key, r, o)
	}
	_, err := io.Copy(io.Discard, r)
	<-d.answer
	return storage.Object{}, errors.Join(err, ctx.Err())
}

// TestRunIntoSeveralOneDeaf checks that a store that does not react to its exclusion, such as a mount whose server hangs, keeps the
// others from nothing.
func TestRunIntoSeveralOneDeaf(t *testing.T) {
	for _, require := range []backup.Require{backup.All, backup.Any} {
		t.Run(string(require), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, answer := memories(3), make(chan struct{})
				r, _ := request(t)
				r.Require, r.Patience = require, 3*time.Second
				to := places{in[0], deaf{in[1], answer}, in[2]}.stores(t)
				var err error
				var run sync.WaitGroup
				run.Go(func() { _, err = backup.RunOfStream(t.Context(), database(2<<20), to, r, nil) })
				time.Sleep(r.Patience + time.Second)
				for _, healthy := range []storage.Bucket{in[0], in[2]} {
					ids := listed(t, open(t, healthy))
					if require == backup.Any && len(ids) != 1 || require == backup.All && len(objects(t, healthy)) > 0 {
						t.Errorf("listed %v, of the objects %v", ids, slices.Collect(maps.Keys(objects(t, healthy))))
					}
				}
				close(answer)
				run.Wait()
				if (err == nil) != (require == backup.Any) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
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
