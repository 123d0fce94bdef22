package repository_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// sample is a small backup and the keys that open it.
type sample struct {
	b      *storagetest.Faults
	c      *repository.Cluster
	backup catalog.Backup
	keys   seal.Keys
	key    string // the object's key in the store
	stored []byte
}

// samples returns two backups of plain, one of them encrypted.
func samples(t *testing.T, plain []byte) map[string]sample {
	t.Helper()
	all := map[string]sample{}
	keys, to := stored.Pair(t)
	for name, to := range map[string]seal.Recipients{"plain": {}, "encrypted": to} {
		s := sample{b: storagetest.Faulty(mem.New()), keys: keys}
		s.c = stored.OpenCluster(t, s.b, "c")
		s.backup = stored.CreateSealed(t, s.c, stored.IDAt(0), plain, to)
		s.key = stored.Folder("c", stored.IDAt(0)) + s.backup.Stored.Name
		s.stored = stored.Get(t, s.b, s.key)
		all[name] = s
	}
	return all
}

func TestFetchFlippedBytes(t *testing.T) {
	for name, s := range samples(t, stored.Content) {
		for at := range s.stored {
			for _, mask := range stored.Masks() {
				stored.Put(t, s.b, s.key, stored.Flip(at, mask)(slices.Clone(s.stored)))
				what := fmt.Sprintf("%s: byte %d of %d ^ %#x", name, at, len(s.stored), mask)
				_, err := stored.Fetch(t, s.c, s.backup, s.keys)
				if !errors.Is(err, catalog.ErrDamaged) {
					t.Errorf("%s: %v", what, err)
				}
				if err != nil && strings.Count(err.Error(), s.key) != 1 {
					t.Errorf("%s: %v: want %s named once", what, err, s.key)
				}
				wantSealedDamaged(t, what, s)
			}
		}
	}
}

func wantSealedDamaged(t *testing.T, what string, s sample) {
	t.Helper()
	r, err := s.c.FetchSealed(t.Context(), s.backup)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range 2 { // later reads return the same error
		_, err = io.Copy(io.Discard, r)
		stored.WantDamaged(t, what+", sealed", err, s.key)
	}
}

func TestFetchCutOrLonger(t *testing.T) {
	for name, s := range samples(t, stored.Content) {
		var changed [][]byte
		for size := range s.stored {
			changed = append(changed, s.stored[:size])
		}
		skippable := []byte{0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 'x'} // a skippable zstd frame
		for _, more := range [][]byte{{0}, stored.Noise(1000), s.stored, skippable} {
			changed = append(changed, slices.Concat(s.stored, more))
		}
		for _, p := range changed {
			stored.Put(t, s.b, s.key, p)
			what := fmt.Sprintf("%s: %d bytes of %d", name, len(p), len(s.stored))
			_, err := stored.Fetch(t, s.c, s.backup, s.keys)
			stored.WantDamaged(t, what, err, s.key)
			wantSealedDamaged(t, what, s)
		}
	}
}

// TestFetchOtherContent checks that Fetch detects a valid sealed object of the same size from another backup.
func TestFetchOtherContent(t *testing.T) {
	for name, s := range samples(t, stored.Content) {
		other := slices.Clone(stored.Content)
		other[0] ^= 1
		for _, s2 := range samples(t, other) {
			if len(s2.stored) != len(s.stored) {
				continue
			}
			stored.Put(t, s.b, s.key, s2.stored)
			_, err := stored.Fetch(t, s.c, s.backup, s.keys.And(s2.keys))
			stored.WantDamaged(t, name, err, s.key)
		}
	}
}

func TestFetchMissing(t *testing.T) {
	for name, s := range samples(t, stored.Content) {
		stored.Remove(t, s.b, s.key)
		_, err := stored.Fetch(t, s.c, s.backup, s.keys)
		stored.WantDamaged(t, name, err, s.key)
		_, err = s.c.FetchSealed(t.Context(), s.backup)
		stored.WantDamaged(t, name, err, s.key)
	}
}

// TestFetchManifestLies checks that Fetch detects a valid manifest that does not match the data.
func TestFetchManifestLies(t *testing.T) {
	for what, lie := range map[string]func(m *catalog.Manifest){
		"plain digest": func(m *catalog.Manifest) { m.Plain.SHA256 = strings.Repeat("0", 64) },
		"plain longer": func(m *catalog.Manifest) { m.Plain.Size++ },
		"plain less":   func(m *catalog.Manifest) { m.Plain.Size-- },
		"plain one":    func(m *catalog.Manifest) { m.Plain.Size = 1 },
		"digest":       func(m *catalog.Manifest) { m.Stored.SHA256 = strings.Repeat("0", 64) },
	} {
		for name, s := range samples(t, stored.Content) {
			m := s.backup.Manifest
			lie(&m)
			stored.Put(t, s.b, stored.Folder("c", stored.IDAt(0))+"manifest.json", encodedManifest(t, m))
			b, err := stored.Load(t, s.c, backups.LoadOptions{}).Find(stored.IDAt(0))
			if err != nil {
				t.Fatal(err)
			}
			_, err = stored.Fetch(t, s.c, b, s.keys)
			stored.WantDamaged(t, name+": "+what, err, s.key)
		}
	}
}

func TestFetchKeys(t *testing.T) {
	s := samples(t, stored.Content)["encrypted"]
	wrong, _ := stored.Pair(t)
	for name, keys := range map[string]seal.Keys{"wrong": wrong, "none": {}} {
		_, err := stored.Fetch(t, s.c, s.backup, keys)
		stored.WantError(t, name, err, seal.ErrWrongKey)
		if errors.Is(err, catalog.ErrDamaged) || !strings.Contains(err.Error(), s.backup.Seal.Recipients[0]) ||
			strings.Count(err.Error(), s.key) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, s := range samples(t, stored.Content) {
		snapshot, err := s.c.Fetch(t.Context(), s.backup, wrong.And(s.keys))
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if name == "encrypted" {
			want = s.backup.Seal.Recipients[0]
		}
		if snapshot.Key != want {
			t.Errorf("%s: opened with %q, want %q", name, snapshot.Key, want)
		}
		snapshot.Close()
	}
}

// TestFetchStoreFails checks that Fetch returns the store's error wherever the stream breaks, even where a decoder sees an end.
func TestFetchStoreFails(t *testing.T) {
	for name, s := range samples(t, stored.Noise(200_000)) {
		size := len(s.stored)
		for _, at := range []int{0, 1, 100, 250, size / 2, size - 1, size} {
			for _, want := range []error{stored.ErrTest, io.ErrUnexpectedEOF} {
				what := fmt.Sprintf("%s: %v at %d of %d", name, want, at, size)
				s.b.On(storagetest.VerbOpen).Cut(at, want)
				_, err := stored.Fetch(t, s.c, s.backup, s.keys)
				stored.WantError(t, what, err, want)
				if errors.Is(err, catalog.ErrDamaged) {
					t.Errorf("%s: %v is called damage", what, err)
				}
			}
		}
		s.b.On(storagetest.VerbOpen).Fail(stored.ErrTest)
		_, err := stored.Fetch(t, s.c, s.backup, s.keys)
		stored.WantError(t, name, err, stored.ErrTest)
		if errors.Is(err, catalog.ErrDamaged) || !strings.Contains(err.Error(), string(stored.IDAt(0))) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFetchCancelled(t *testing.T) {
	for name, s := range samples(t, stored.Noise(5<<20)) {
		ctx, cancel := context.WithCancel(t.Context())
		snapshot, err := s.c.Fetch(ctx, s.backup, s.keys)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.CopyN(io.Discard, snapshot, 10)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		_, err = io.Copy(io.Discard, snapshot)
		stored.WantError(t, name, err, context.Canceled)
		err = snapshot.Close()
		if err != nil {
			t.Error(err)
		}
	}
}

// TestFetchEndStays checks that a stream repeats its end or its error, and that one that is closed early returns an error that
// is not damage.
func TestFetchEndStays(t *testing.T) {
	for name, s := range samples(t, stored.Content) {
		for _, damage := range []bool{false, true} {
			if damage {
				stored.Put(t, s.b, s.key, stored.Flip(len(s.stored)-1, 1)(slices.Clone(s.stored)))
			}
			snapshot, err := s.c.Fetch(t.Context(), s.backup, s.keys)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, snapshot)
			for range 2 {
				n, again := snapshot.Read(make([]byte, 1))
				if n > 0 || err == nil && again != io.EOF || err != nil && again != err {
					t.Errorf("%s: %v, then %d bytes, %v", name, err, n, again)
				}
			}
			err = snapshot.Close()
			if err != nil {
				t.Error(err)
			}
		}
		stored.Put(t, s.b, s.key, s.stored)
		snapshot, err := s.c.Fetch(t.Context(), s.backup, s.keys)
		if err != nil {
			t.Fatal(err)
		}
		snapshot.Close()
		_, err = io.Copy(io.Discard, snapshot)
		if err == nil || errors.Is(err, catalog.ErrDamaged) {
			t.Errorf("%s: after Close: %v", name, err)
		}
	}
}

// TestFetchClosesTheStore checks that Fetch closes the store's stream exactly once, also if Fetch fails.
func TestFetchClosesTheStore(t *testing.T) {
	wrong, _ := stored.Pair(t)
	for name, s := range samples(t, stored.Content) {
		open := 0
		b := closeCounter{s.b, &open}
		c := stored.OpenCluster(t, b, "c")
		for _, keys := range []seal.Keys{s.keys, wrong, {}} {
			p, err := stored.Fetch(t, c, s.backup, keys)
			if err == nil && !bytes.Equal(p, stored.Content) {
				t.Errorf("%s: %d bytes", name, len(p))
			}
		}
		stored.Load(t, c, backups.LoadOptions{Proofs: true})
		if open != 0 {
			t.Errorf("%s: %d streams are still open", name, open)
		}
	}
}

// closeCounter is a Bucket that counts open streams.
type closeCounter struct {
	storage.Bucket
	open *int
}

func (b closeCounter) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	r, object, err := b.Bucket.Open(ctx, key, o)
	if err != nil {
		return nil, object, err
	}
	*b.open++
	return &counted{r, b.open}, object, nil
}

type counted struct {
	io.ReadCloser
	open *int
}

func (c *counted) Close() error {
	*c.open--
	return c.ReadCloser.Close()
}
