package storage_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

// stores are the buckets below the decorators. Their parts are small; the stores' own tests have large ones.
var stores = []struct {
	name string
	open func(t *testing.T) storage.Bucket
	o    storagetest.Options
}{
	{"mem", func(*testing.T) storage.Bucket { return mem.New() }, storagetest.Options{PartSizes: []int{96 << 10}}},
	{"file", openFile, storagetest.Options{
		PartSizes: []int{96 << 10}, NoVersions: true, NoLocks: true, NoNesting: true,
	}},
}

func openFile(t *testing.T) storage.Bucket {
	t.Helper()
	b, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type decorator struct {
	name string
	over func(storage.Bucket) storage.Bucket
}

var guardOptions = storage.GuardOptions{Limit: time.Minute, Most: 8, Failures: 3, Rest: time.Minute}

var single = []decorator{
	{"prefix", func(b storage.Bucket) storage.Bucket { return storage.WithPrefix(b, "some/where/") }},
	{"limit", func(b storage.Bucket) storage.Bucket {
		fast := rate.NewLimiter(1<<40, 40_000)
		return storage.WithLimit(b, storage.Limits{Up: fast, Down: fast})
	}},
	{"retry", func(b storage.Bucket) storage.Bucket {
		return storage.WithRetry(b, storage.RetryPolicy{Attempts: 3, Base: time.Millisecond, Max: time.Millisecond})
	}},
	{"parallel", func(b storage.Bucket) storage.Bucket { return storage.WithParallel(b, 3, 10_000) }},
	{"guard", func(b storage.Bucket) storage.Bucket {
		g := storage.NewGuard(func(context.Context) (storage.Bucket, error) { return b, nil }, guardOptions)
		_ = g.Reach(context.Background()) // the bucket below is accessible once it is open
		return g
	}},
	{"faults", func(b storage.Bucket) storage.Bucket { return storagetest.Faulty(b) }},
}

var decorators = append(slices.Clone(single), decorator{"all", all})

func all(b storage.Bucket) storage.Bucket {
	for _, d := range single {
		b = d.over(b)
	}
	return b
}

func TestContract(t *testing.T) {
	for _, s := range stores {
		if testing.Short() && s.name == "file" {
			continue // each is compared with mem, and file has its own tests
		}
		for _, d := range decorators {
			t.Run(s.name+"/"+d.name, func(t *testing.T) {
				storagetest.Run(t, func(t *testing.T) storage.Bucket { return d.over(s.open(t)) }, s.o)
			})
		}
	}
}

// TestSweeperShowsThrough checks that a decorator does not hide a Sweeper.
func TestSweeperShowsThrough(t *testing.T) {
	for _, d := range decorators {
		_, ok := storage.AsSweeper(d.over(openFile(t)))
		if !ok {
			t.Errorf("%s hides the Sweeper of file", d.name)
		}
		_, ok = storage.AsSweeper(d.over(mem.New()))
		if ok {
			t.Errorf("%s over mem, which has no leftovers, is a Sweeper", d.name)
		}
	}
}
