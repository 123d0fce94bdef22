package scheduler_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
)

// slowStore answers each request after that long; with deaf no context ends a request, as one to a file system that hangs.
type slowStore struct {
	storage.Bucket
	on   *atomic.Bool
	long time.Duration
	deaf bool
	err  error // its error; nil: the bucket's
}

func (s slowStore) wait(ctx context.Context) error {
	if !s.on.Load() {
		return nil
	}
	for waited := time.Duration(0); waited < s.long && (s.deaf && s.on.Load() || ctx.Err() == nil); waited += time.Minute {
		done := ctx.Done()
		if s.deaf {
			done = nil
		}
		select {
		case <-done:
		case <-time.After(min(time.Minute, s.long-waited)):
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.err
}

func (s slowStore) Put(ctx context.Context, k string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	err := s.wait(ctx)
	if err != nil {
		return storage.Object{}, err
	}
	return s.Bucket.Put(ctx, k, r, o)
}

func (s slowStore) Open(ctx context.Context, k string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	err := s.wait(ctx)
	if err != nil {
		return nil, storage.Object{}, err
	}
	return s.Bucket.Open(ctx, k, o)
}

func (s slowStore) Stat(ctx context.Context, k string) (storage.Object, error) {
	err := s.wait(ctx)
	if err != nil {
		return storage.Object{}, err
	}
	return s.Bucket.Stat(ctx, k)
}

func (s slowStore) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		err := s.wait(ctx)
		if err != nil {
			yield(storage.Object{}, err)
			return
		}
		s.Bucket.List(ctx, o)(yield)
	}
}

// troubles are the ways in which a repository fails.
var troubles = map[string]slowStore{
	"fails at once":          {err: errTest},
	"fails slowly":           {long: 95 * time.Second, err: errTest},
	"answers after 10 s":     {long: 10 * time.Second},
	"answers after 4 min":    {long: 4 * time.Minute},
	"never answers":          {long: 1000 * time.Hour},
	"is a deaf file system":  {long: 1000 * time.Hour, deaf: true},
	"is deaf for 10 minutes": {long: 10 * time.Minute, deaf: true},
}

// opening makes w's repository offsite fail while on is set.
func (w *world) opening(trouble slowStore, on *atomic.Bool) func(*scheduler.Service) {
	return func(s *scheduler.Service) {
		s.Open = func(ctx context.Context, r spec.Repository) (storage.Bucket, error) {
			b, err := w.open(ctx, r)
			if strings.HasPrefix(r.URL, "offsite") {
				own := trouble
				own.Bucket, own.on = b, on
				return own, err
			}
			return b, err
		}
	}
}

// recover ends the trouble, and waits for the abandoned requests.
func (w *world) recover(on *atomic.Bool) {
	on.Store(false)
	w.pass(2 * time.Minute)
}

// besideProd returns prod, whose store is healthy, and 200 clusters that share another store; fewer in short tests.
func besideProd(t *testing.T) []spec.Spec {
	t.Helper()
	others := 200
	if testing.Short() {
		others = 20
	}
	prod := specOf(t, "prod", "15 * * * *", "main")
	prod.Observe, prod.Triggers = 10*time.Minute, spec.Triggers{Gap: true, Every: 5 * time.Minute}
	specs := []spec.Spec{prod}
	for i := range others {
		s := specOf(t, fmt.Sprintf("b%03d", i), fmt.Sprintf("%d * * * *", i%60), "offsite")
		s.Observe, s.Triggers = 20*time.Minute, spec.Triggers{Gap: true, Every: 20 * time.Minute}
		specs = append(specs, s)
	}
	return specs
}

// The same if each of the 200 clusters has its own repository in the failing store.
func TestSlowStoreOfManyPlaces(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		specs := besideProd(t)
		for i := range specs[1:] {
			r := &specs[1+i].Repositories[0]
			r.Pattern, r.URL = "offsite/{{cluster}}", "offsite/"+specs[1+i].Cluster
		}
		on := &atomic.Bool{}
		defer w.recover(on)
		on.Store(true)
		s := w.start("a", configOf(specs...), w.opening(troubles["never answers"], on))
		w.pass(3 * time.Hour)
		want := []time.Duration{0, 15 * time.Minute, 75 * time.Minute, 135 * time.Minute}
		got := w.times("prod")
		if !equal(got, want) {
			t.Errorf("prod was taken at %v, want %v", got, want)
		}
		at := s.status(t, "prod").Standings[0].At
		if time.Since(at) > 20*time.Minute {
			t.Errorf("prod was last looked at %s ago", time.Since(at))
		}
	})
}

// 200 clusters on a failing repository do not delay a cluster on a healthy one, at the start of a service and later.
func TestSlowStoresAreTheirClustersAlone(t *testing.T) {
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				specs := besideProd(t)
				on := &atomic.Bool{}
				defer w.recover(on)
				first := w.start("a", configOf(specs...), w.opening(trouble, on))
				w.pass(time.Hour)
				on.Store(true)
				w.pass(2 * time.Hour)
				for _, c := range first.status(t, "prod").Conditions {
					if c.Name == "BackupLate" || c.Name == "RepositoryAway" {
						t.Errorf("prod: %s: %s", c.Name, c.Message)
					}
				}
				at := first.status(t, "prod").Standings[0].At
				if time.Since(at) > 20*time.Minute {
					t.Errorf("prod was last looked at %s ago", time.Since(at))
				}
				first.end()
				w.start("b", configOf(specs...), w.opening(trouble, on))
				w.pass(time.Hour)
				want := []time.Duration{0}
				for hour := range 4 {
					want = append(want, time.Duration(hour)*time.Hour+15*time.Minute)
				}
				got := w.times("prod")
				if !equal(got, want) {
					t.Errorf("prod was taken at %v, want %v", got, want)
				}
			})
		})
	}
}

// Where any repository will do, one that is in trouble makes a backup a minute late at most.
func TestASlowStoreMakesNoBackupLate(t *testing.T) {
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				settings := specOf(t, "prod", "15 * * * *", "offsite", "main")
				settings.Backup.Require = spec.Any
				on := &atomic.Bool{}
				defer w.recover(on)
				w.start("a", configOf(settings), w.opening(trouble, on))
				w.pass(2 * time.Hour)
				on.Store(true)
				w.pass(5 * time.Hour)
				times := w.times("prod")
				if len(times) != 8 {
					t.Fatalf("taken at %v", times)
				}
				for i, at := range times[1:] {
					late := at - (time.Duration(i)*time.Hour + 15*time.Minute)
					if late < 0 || late > 2*time.Minute {
						t.Errorf("taken at %s", at)
					}
				}
			})
		})
	}
}
