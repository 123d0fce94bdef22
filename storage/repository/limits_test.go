package repository_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// flooded is a store into which an attacker has put many backups, each with the largest possible manifest.
type flooded struct {
	storage.Bucket
	backups int
	size    int64 // the listed size of each manifest

	mu      sync.Mutex
	opened  int
	highest uint64 // the largest live heap, in bytes
}

func (f *flooded) List(_ context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		if !strings.HasPrefix("c/backups/", o.Prefix) {
			return
		}
		for n := range f.backups {
			prefix := stored.Folder("c", floodID(n))
			manifest := storage.Object{Key: prefix + "manifest.json", Size: f.size, Version: fmt.Sprint("version ", n)}
			data := storage.Object{Key: prefix + "snapshot.db.zst", Size: 10, Version: fmt.Sprint("version ", n)}
			if !yield(manifest, nil) || !yield(data, nil) {
				return
			}
		}
	}
}

func floodID(n int) catalog.ID {
	return catalog.NewID(stored.Noon.Add(time.Duration(n)*time.Second), 1000)
}

func (f *flooded) Open(_ context.Context, key string, _ storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	if !strings.HasSuffix(key, "/manifest.json") {
		return nil, storage.Object{}, storage.ErrNotExist
	}
	id := catalog.ID(strings.Split(key, "/")[2])
	m := stored.ManifestOf(stored.Content, id.Started())
	m.Format, m.ID, m.Cluster = catalog.Manifests.Format, id, "c"
	m.Seal = seal.Recipients{}.Seal()
	m.Stored = catalog.Blob{Name: "snapshot.db.zst", Size: 10, SHA256: m.Plain.SHA256}
	m.Labels = map[string]string{"junk": strings.Repeat("x", 120<<10)}
	data, err := catalog.Manifests.Encode(m)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened++
	if f.opened%250 == 1 {
		f.highest = max(f.highest, stored.Live())
	}
	return io.NopCloser(bytes.NewReader(data)), storage.Object{Key: key, Size: int64(len(data))}, err
}

// A catalog takes bounded memory, whatever the store contains: 100,000 backups with the largest manifests would be 12 GiB.
func TestFloodedRepositoryTakesBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector takes several times the memory")
	}
	const limit = 256 << 20
	for what, load := range map[string]func(c *repository.Cluster) (any, error){
		"a survey": func(c *repository.Cluster) (any, error) {
			return c.Survey(t.Context(), repository.SurveyOptions{Newest: 6})
		},
		"a catalog": func(c *repository.Cluster) (any, error) {
			catalog, err := c.Load(t.Context(), backups.LoadOptions{Proofs: true})
			if len(catalog.Backups) == 0 || len(catalog.Damaged) == 0 || catalog.Backups[0].ID != floodID(99_999) {
				t.Errorf("%d backups, %d damaged, want the newest ones", len(catalog.Backups), len(catalog.Damaged))
			}
			return catalog, err
		},
	} {
		f := &flooded{Bucket: mem.New(), backups: 100_000, size: 122 << 10}
		c := stored.OpenCluster(t, f, "c")
		before := stored.Live()
		held, err := load(c)
		if err != nil {
			t.Fatal(err)
		}
		grown := max(f.highest, stored.Live()) - before
		runtime.KeepAlive(held)
		t.Logf("%s: %d MiB", what, grown>>20)
		if grown > limit {
			t.Errorf("%s takes %d MiB, want at most %d", what, grown>>20, limit>>20)
		}
	}
}

// Clusters whose repositories are flooded take bounded memory together, if a service reads them at the same time.
func TestFloodedRepositoriesShareBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector takes several times the memory")
	}
	const clusters, limit = 10, 512 << 20 // without the shared bound, the documents alone have 640 MiB
	f := &flooded{Bucket: mem.New(), backups: 700, size: 122 << 10}
	before := stored.Live()
	var loading sync.WaitGroup
	for range clusters {
		c := stored.OpenCluster(t, f, "c")
		loading.Go(func() {
			catalog, err := c.Load(t.Context(), backups.LoadOptions{Proofs: true})
			if err != nil || len(catalog.Backups) == 0 || len(catalog.Damaged) == 0 {
				t.Errorf("%d backups, %d damaged, error %v", len(catalog.Backups), len(catalog.Damaged), err)
			}
		})
	}
	loading.Wait()
	grown := f.highest - before
	t.Logf("%d clusters: %d MiB", clusters, grown>>20)
	if grown > limit {
		t.Errorf("%d clusters take %d MiB, want at most %d", clusters, grown>>20, limit>>20)
	}
}

// A listing with more objects than dr ever writes is refused.
func TestEndlessListingIsRefused(t *testing.T) {
	c := stored.OpenCluster(t, &flooded{Bucket: mem.New(), backups: 1 << 30}, "c")
	_, err := c.Load(t.Context(), backups.LoadOptions{Newest: 1})
	if err == nil || !strings.Contains(err.Error(), "more than 500000 objects below c/backups/") {
		t.Errorf("error %v", err)
	}
}
