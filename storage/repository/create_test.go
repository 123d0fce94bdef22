package repository_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

func TestCreateLoadFetch(t *testing.T) {
	keys, to := stored.Pair(t)
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		for i, c2 := range []struct {
			to    seal.Recipients
			plain []byte
		}{{seal.Recipients{}, stored.Content}, {to, stored.Content}, {to, stored.Noise(3 << 20)}, {seal.Recipients{}, make([]byte, 1<<20)}} {
			created := stored.CreateSealed(t, c, stored.IDAt(i), c2.plain, c2.to)
			loaded, err := stored.Load(t, c, backups.LoadOptions{}).Find(stored.IDAt(i))
			diff := cmp.Diff(created, loaded)
			if err != nil || diff != "" {
				t.Errorf("%d: what was created is not what is loaded: %v\n%s", i, err, diff)
			}
			p, err := stored.Fetch(t, c, loaded, keys)
			if err != nil || !bytes.Equal(p, c2.plain) {
				t.Errorf("%d: %d bytes, %v", i, len(p), err)
			}
			wantSealedAsStored(t, b, c, loaded)
		}
	})
}

func wantSealedAsStored(t *testing.T, bucket storage.Bucket, c *repository.Cluster, b catalog.Backup) {
	t.Helper()
	r, err := c.FetchSealed(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, stored.Get(t, bucket, stored.Folder(c.Name(), b.ID)+b.Stored.Name)) {
		t.Errorf("FetchSealed of %s: %d bytes, %v", b.ID, len(got), err)
	}
}

// TestCreateFillsIn checks that Create overwrites the fields of the manifest that it knows.
func TestCreateFillsIn(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	m := fullManifest()
	m.Format, m.ID, m.Cluster = 7, stored.IDAt(7), "other"
	got, err := stored.TryCreate(t, c, stored.IDAt(0), m)
	if err != nil {
		t.Fatal(err)
	}
	written := stored.Get(t, b, stored.Folder("c", stored.IDAt(0))+stored.PlainName)
	if got.Format != 1 || got.ID != stored.IDAt(0) || got.Cluster != "c" || got.Seal.Encryption != "" ||
		got.Stored.Name != stored.PlainName || got.Stored.Size != int64(len(written)) || got.Labels["by"] != "me" {
		t.Errorf("%+v", got)
	}
	stored.WantContent(t, c, got)
}

// TestNothingBeforeTheManifest checks that complete data without a manifest is not listed as a backup.
func TestNothingBeforeTheManifest(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		_, err := stored.CreateFrom(t.Context(), c, stored.IDAt(0), seal.Recipients{}.Seal(), stored.Sealed(t, stored.Content, seal.Recipients{}),
			func() (catalog.Manifest, error) {
				got := stored.Keys(t, b)
				if !slices.Equal(got, []string{stored.Folder("c", stored.IDAt(0)) + stored.PlainName}) {
					t.Errorf("there is %q", got)
				}
				for _, o := range []backups.LoadOptions{{}, {Only: stored.IDAt(0), Proofs: true}} {
					stored.WantIDs(t, stored.Load(t, c, o), nil, nil)
				}
				return stored.ManifestOf(stored.Content, stored.Noon), nil
			})
		if err != nil {
			t.Fatal(err)
		}
		stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), []catalog.ID{stored.IDAt(0)}, nil)
	})
}

// lateManifest is a Bucket that executes the Put of a manifest, which has failed for its caller, when the data is deleted.
type lateManifest struct {
	storage.Bucket
	execute func() error
}

func (l *lateManifest) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	if !strings.HasSuffix(key, "/"+catalog.ManifestName) {
		return l.Bucket.Put(ctx, key, r, o)
	}
	data, err := io.ReadAll(r)
	l.execute = func() error {
		_, err := l.Bucket.Put(context.WithoutCancel(ctx), key, bytes.NewReader(data), o)
		return err
	}
	return storage.Object{}, errors.Join(err, context.DeadlineExceeded)
}

func (l *lateManifest) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	err := l.Bucket.Delete(ctx, key, o)
	if l.execute != nil {
		err = errors.Join(err, l.execute())
		l.execute = nil
	}
	return err
}

// TestLateManifest checks that no backup without data is listed if the store executes the Put of the manifest late.
func TestLateManifest(t *testing.T) {
	b := &lateManifest{Bucket: mem.New()}
	c := stored.OpenCluster(t, b, "c")
	_, err := stored.TryCreate(t, c, stored.IDAt(0), fullManifest())
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	keys := stored.Keys(t, b)
	if len(keys) > 0 {
		t.Errorf("left %q", keys)
	}
}

// source is a Reader that returns data and then err.
type source struct {
	data []byte
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	n := copy(p, s.data)
	s.data = s.data[n:]
	if n > 0 {
		return n, nil
	}
	return 0, s.err
}

func TestCreateBrokenSource(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c, data := stored.OpenCluster(t, b, "c"), stored.Noise(300_000)
		for _, at := range []int{0, 1, 1000, len(data) - 1, len(data)} {
			for _, want := range []error{stored.ErrTest, io.ErrUnexpectedEOF, fmt.Errorf("vetoed: %w", io.EOF)} {
				_, err := stored.CreateFrom(t.Context(), c, stored.IDAt(0), seal.Recipients{}.Seal(), &source{data[:at], want},
					func() (catalog.Manifest, error) {
						t.Error("asked for the manifest of a broken stream")
						return catalog.Manifest{}, nil
					})
				stored.WantError(t, fmt.Sprintf("%v at %d", want, at), err, want)
				stored.WantNothing(t, fmt.Sprintf("%v at %d", want, at), b)
			}
		}
	})
}

// TestCreateBrokenBelowTheSeal checks that Create returns the error of the member's stream through zstd and age.
func TestCreateBrokenBelowTheSeal(t *testing.T) {
	_, to := stored.Pair(t)
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		for _, at := range []int{0, 10, 200_000, 300_000} {
			stream, err := seal.New(&source{stored.Noise(300_000)[:at], stored.ErrTest}, to)
			if err != nil {
				t.Fatal(err)
			}
			_, err = stored.CreateFrom(t.Context(), stored.OpenCluster(t, b, "c"), stored.IDAt(0), to.Seal(), stream, nil)
			stream.Close()
			stored.WantError(t, fmt.Sprint("broken at ", at), err, stored.ErrTest)
			stored.WantNothing(t, fmt.Sprint("broken at ", at), b)
		}
	})
}

func TestCreateManifestRefused(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		_, err := stored.CreateFrom(t.Context(), c, stored.IDAt(0), seal.Recipients{}.Seal(), stored.Sealed(t, stored.Content, seal.Recipients{}),
			func() (catalog.Manifest, error) { return catalog.Manifest{}, stored.ErrTest })
		stored.WantError(t, "callback", err, stored.ErrTest)
		stored.WantNothing(t, "a callback that failed", b)

		invalid := stored.ManifestOf(stored.Content, stored.Noon)
		invalid.Revision = 0
		_, err = stored.TryCreate(t, c, stored.IDAt(0), invalid)
		if err == nil || !strings.Contains(err.Error(), string(stored.IDAt(0))) {
			t.Errorf("an invalid manifest: %v", err)
		}
		stored.WantNothing(t, "an invalid manifest", b)
	})
}

// TestCreateManifestTooLong checks that Create refuses a manifest that is too long for Load.
func TestCreateManifestTooLong(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	m := stored.ManifestOf(stored.Content, stored.Noon)
	m.Labels = catalog.Labels{"essay": strings.Repeat("x", 1<<20)}
	_, err := stored.TryCreate(t, c, stored.IDAt(0), m)
	if err == nil || !strings.Contains(err.Error(), "label") {
		t.Errorf("got %v", err)
	}
	stored.WantNothing(t, "a manifest that is too long", b)
	m.Labels["essay"] = strings.Repeat("x", 1<<16)
	_, err = stored.TryCreate(t, c, stored.IDAt(0), m)
	if err != nil {
		t.Fatal(err)
	}
	stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), []catalog.ID{stored.IDAt(0)}, nil)
}

func TestCreateEmptyStream(t *testing.T) {
	b := mem.New()
	_, err := stored.CreateFrom(t.Context(), stored.OpenCluster(t, b, "c"), stored.IDAt(0), seal.Recipients{}.Seal(), strings.NewReader(""),
		func() (catalog.Manifest, error) { return stored.ManifestOf(stored.Content, stored.Noon), nil })
	if err == nil {
		t.Error("a backup without a byte is one")
	}
	stored.WantNothing(t, "an empty stream", b)
}

func TestCreateStoreFails(t *testing.T) {
	for name, c := range map[string]struct {
		arm  func(f *storagetest.Faults)
		left []string // remaining objects
	}{
		"data":                     {func(f *storagetest.Faults) { f.On(storagetest.VerbPut).Fail(stored.ErrTest) }, nil},
		"data, in the middle":      {func(f *storagetest.Faults) { f.On(storagetest.VerbPut).Cut(20, stored.ErrTest) }, nil},
		"data, answer lost":        {func(f *storagetest.Faults) { f.On(storagetest.VerbPut).FailLate(stored.ErrTest) }, []string{stored.PlainName}},
		"manifest":                 {func(f *storagetest.Faults) { f.On(storagetest.VerbPut).Nth(2).Fail(stored.ErrTest) }, nil},
		"manifest, in the middle":  {func(f *storagetest.Faults) { f.On(storagetest.VerbPut).Nth(2).Cut(20, stored.ErrTest) }, nil},
		"manifest, then no Delete": {failTwice(storagetest.VerbDelete), []string{stored.PlainName}},
		"manifest, then no Open":   {failTwice(storagetest.VerbOpen), []string{stored.PlainName}},
	} {
		t.Run(name, func(t *testing.T) {
			stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
				faults := storagetest.Faulty(b)
				c.arm(faults)
				cluster := stored.OpenCluster(t, faults, "c")
				_, err := stored.TryCreate(t, cluster, stored.IDAt(0), stored.ManifestOf(stored.Content, stored.Noon))
				stored.WantError(t, "Create", err, stored.ErrTest)
				var want []string
				for _, name := range c.left {
					want = append(want, stored.Folder("c", stored.IDAt(0))+name)
				}
				got := stored.Keys(t, b)
				if !slices.Equal(got, want) {
					t.Errorf("left is %q, want %q", got, want)
				}
				stored.WantIDs(t, stored.Load(t, cluster, backups.LoadOptions{}), nil, nil)
				left, err := cluster.Leftovers(t.Context())
				if err != nil || len(left) != len(want) {
					t.Errorf("leftovers %+v, %v", left, err)
				}
			})
		})
	}
}

// failTwice fails the Put of the manifest, and then the request that would remove the data.
func failTwice(verb storagetest.Verb) func(f *storagetest.Faults) {
	return func(f *storagetest.Faults) {
		f.On(storagetest.VerbPut).Nth(2).Fail(stored.ErrTest)
		f.On(verb).Fail(errors.New("the store has gone away"))
	}
}

// TestCreateAnswerLost checks that the data stays if the manifest was stored and only the answer was lost.
func TestCreateAnswerLost(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		faults := storagetest.Faulty(b)
		c := stored.OpenCluster(t, faults, "c")
		faults.On(storagetest.VerbPut).Nth(2).FailLate(stored.ErrTest)
		_, err := stored.TryCreate(t, c, stored.IDAt(0), stored.ManifestOf(stored.Content, stored.Noon))
		stored.WantError(t, "Create", err, stored.ErrTest)
		latest, err := stored.Load(t, c, backups.LoadOptions{}).Latest()
		if err != nil {
			t.Fatal(err)
		}
		stored.WantContent(t, c, latest)
	})
}

// TestCreateCancelled checks that Create removes the data even if its context has ended.
func TestCreateCancelled(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := stored.CreateFrom(ctx, stored.OpenCluster(t, b, "c"), stored.IDAt(0), seal.Recipients{}.Seal(), stored.Sealed(t, stored.Content, seal.Recipients{}),
			func() (catalog.Manifest, error) {
				cancel()
				return stored.ManifestOf(stored.Content, stored.Noon), nil
			})
		stored.WantError(t, "Create", err, context.Canceled)
		stored.WantNothing(t, "a cancelled backup", b)
	})
}

func TestCreateTaken(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		first := stored.Create(t, c, stored.IDAt(0))
		_, err := stored.TryCreate(t, c, stored.IDAt(0), stored.ManifestOf(stored.Content, stored.Noon))
		stored.WantError(t, "Create of a taken name", err, storage.ErrExist)
		stored.WantContent(t, c, first)
	})
}

// TestCreateTakenByAnotherSeal checks that the second of two backups with one ID and two seals removes its data. The names of
// the data differ, so only the manifest is in its way, and next to a manifest no data is ever swept as a leftover.
func TestCreateTakenByAnotherSeal(t *testing.T) {
	_, to := stored.Pair(t)
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		first := stored.Create(t, c, stored.IDAt(0))
		before := stored.Keys(t, b)
		for what, cause := range map[string]error{"late": nil, "no manifest": stored.ErrTest} {
			_, err := stored.CreateFrom(t.Context(), c, stored.IDAt(0), to.Seal(), stored.Sealed(t, stored.Content, to),
				func() (catalog.Manifest, error) { return stored.ManifestOf(stored.Content, stored.Noon), cause })
			if cause == nil {
				cause = storage.ErrExist
			}
			stored.WantError(t, what, err, cause)
			got := stored.Keys(t, b)
			if !slices.Equal(got, before) {
				t.Errorf("%s: left is %q", what, got)
			}
		}
		stored.WantContent(t, c, first)
	})
}

func TestCreateRace(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		errs := make([]error, 8)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				m := stored.ManifestOf(stored.Content, stored.Noon)
				m.Labels = catalog.Labels{"runner": fmt.Sprint(i)}
				_, errs[i] = stored.TryCreate(t, c, stored.IDAt(0), m)
			})
		}
		all.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner < 0:
				winner = i
			case err == nil:
				t.Errorf("%d and %d have won", winner, i)
			case !errors.Is(err, storage.ErrExist):
				t.Errorf("%d: %v", i, err)
			}
		}
		latest, err := stored.Load(t, c, backups.LoadOptions{}).Latest()
		if err != nil || latest.Labels["runner"] != fmt.Sprint(winner) {
			t.Fatalf("%d has won, stored is %v, %v", winner, latest.Labels, err)
		}
		stored.WantContent(t, c, latest)
	})
}

func TestFreeID(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		faults := storagetest.Faulty(b)
		c := stored.OpenCluster(t, faults, "c")
		for i := range 4 {
			id, err := c.FreeID(t.Context(), catalog.NewID(stored.Noon.Add(500*time.Millisecond), 7))
			want := catalog.NewID(stored.Noon.Add(time.Duration(i)*time.Second), 7)
			if err != nil || id != want {
				t.Fatalf("%d: %q, %v, want %q", i, id, err, want)
			}
			if i%2 == 0 {
				stored.Create(t, c, id)
			} else { // the data of a killed backup uses its ID too
				stored.Put(t, b, stored.Folder("c", id)+stored.PlainName, stored.Content)
			}
		}
		id, err := c.FreeID(t.Context(), catalog.NewID(stored.Noon, 8))
		if err != nil || id != catalog.NewID(stored.Noon, 8) {
			t.Errorf("at another revision: %q, %v", id, err)
		}
		faults.On(storagetest.VerbList).Fail(stored.ErrTest)
		_, err = c.FreeID(t.Context(), catalog.NewID(stored.Noon, 7))
		stored.WantError(t, "FreeID", err, stored.ErrTest)
	})
}
