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
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

func TestCreateLoadFetch(t *testing.T) {
	keys, to := pair(t)
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c := openCluster(t, b, "c")
		for i, c2 := range []struct {
			to    seal.Recipients
			plain []byte
		}{{seal.Recipients{}, content}, {to, content}, {to, noise(3 << 20)}, {seal.Recipients{}, make([]byte, 1<<20)}} {
			created := createSealed(t, c, idAt(i), c2.plain, c2.to)
			loaded, err := load(t, c, repository.LoadOptions{}).Find(idAt(i))
			if diff := cmp.Diff(created, loaded); err != nil || diff != "" {
				t.Errorf("%d: what was created is not what is loaded: %v\n%s", i, err, diff)
			}
			if p, err := fetch(t, c, loaded, keys); err != nil || !bytes.Equal(p, c2.plain) {
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
	if err != nil || !bytes.Equal(got, get(t, bucket, folder(c.Name(), b.ID)+b.Stored.Name)) {
		t.Errorf("FetchSealed of %s: %d bytes, %v", b.ID, len(got), err)
	}
}

// TestCreateFillsIn: a caller cannot lie about what Create knows.
func TestCreateFillsIn(t *testing.T) {
	b := mem.New()
	c := openCluster(t, b, "c")
	m := fullManifest()
	m.Format, m.ID, m.Cluster = 7, idAt(7), "other"
	got, err := tryCreate(t, c, idAt(0), m)
	if err != nil {
		t.Fatal(err)
	}
	stored := get(t, b, folder("c", idAt(0))+plainName)
	if got.Format != 1 || got.ID != idAt(0) || got.Cluster != "c" || got.Seal.Encryption != "" ||
		got.Stored.Name != plainName || got.Stored.Size != int64(len(stored)) || got.Labels["by"] != "me" {
		t.Errorf("%+v", got)
	}
	wantContent(t, c, got)
}

// TestNothingBeforeTheManifest: the data is there, complete, and nobody takes it for a backup.
func TestNothingBeforeTheManifest(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c := openCluster(t, b, "c")
		_, err := c.Create(t.Context(), idAt(0), seal.Recipients{}.Seal(), 0, sealed(t, content, seal.Recipients{}),
			func() (catalog.Manifest, error) {
				if got := keys(t, b); !slices.Equal(got, []string{folder("c", idAt(0)) + plainName}) {
					t.Errorf("there is %q", got)
				}
				for _, o := range []repository.LoadOptions{{}, {Only: idAt(0), Proofs: true}} {
					wantIDs(t, load(t, c, o), nil, nil)
				}
				return manifestOf(content, noon), nil
			})
		if err != nil {
			t.Fatal(err)
		}
		wantIDs(t, load(t, c, repository.LoadOptions{}), []catalog.ID{idAt(0)}, nil)
	})
}

// source yields data and then err.
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
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c, data := openCluster(t, b, "c"), noise(300_000)
		for _, at := range []int{0, 1, 1000, len(data) - 1, len(data)} {
			for _, want := range []error{errTest, io.ErrUnexpectedEOF, fmt.Errorf("vetoed: %w", io.EOF)} {
				_, err := c.Create(t.Context(), idAt(0), seal.Recipients{}.Seal(), 0, &source{data[:at], want},
					func() (catalog.Manifest, error) {
						t.Error("asked for the manifest of a broken stream")
						return catalog.Manifest{}, nil
					})
				wantError(t, fmt.Sprintf("%v at %d", want, at), err, want)
				wantNothing(t, fmt.Sprintf("%v at %d", want, at), b)
			}
		}
	})
}

// TestCreateBrokenBelowTheSeal: the error of the member's stream passes through zstd and age.
func TestCreateBrokenBelowTheSeal(t *testing.T) {
	_, to := pair(t)
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		for _, at := range []int{0, 10, 200_000, 300_000} {
			stream, err := seal.New(&source{noise(300_000)[:at], errTest}, to)
			if err != nil {
				t.Fatal(err)
			}
			_, err = openCluster(t, b, "c").Create(t.Context(), idAt(0), to.Seal(), 0, stream, nil)
			stream.Close()
			wantError(t, fmt.Sprint("broken at ", at), err, errTest)
			wantNothing(t, fmt.Sprint("broken at ", at), b)
		}
	})
}

func TestCreateManifestRefused(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c := openCluster(t, b, "c")
		_, err := c.Create(t.Context(), idAt(0), seal.Recipients{}.Seal(), 0, sealed(t, content, seal.Recipients{}),
			func() (catalog.Manifest, error) { return catalog.Manifest{}, errTest })
		wantError(t, "callback", err, errTest)
		wantNothing(t, "a callback that failed", b)

		invalid := manifestOf(content, noon)
		invalid.Revision = 0
		if _, err := tryCreate(t, c, idAt(0), invalid); err == nil || !strings.Contains(err.Error(), string(idAt(0))) {
			t.Errorf("an invalid manifest: %v", err)
		}
		wantNothing(t, "an invalid manifest", b)
	})
}

// TestCreateManifestTooLong: what Load would not read must not be written.
func TestCreateManifestTooLong(t *testing.T) {
	b := mem.New()
	c := openCluster(t, b, "c")
	m := manifestOf(content, noon)
	m.Labels = catalog.Labels{"essay": strings.Repeat("x", 1<<20)}
	if _, err := tryCreate(t, c, idAt(0), m); err == nil || !strings.Contains(err.Error(), "label") {
		t.Errorf("got %v", err)
	}
	wantNothing(t, "a manifest that is too long", b)
	m.Labels["essay"] = strings.Repeat("x", 1<<16)
	if _, err := tryCreate(t, c, idAt(0), m); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, load(t, c, repository.LoadOptions{}), []catalog.ID{idAt(0)}, nil)
}

func TestCreateEmptyStream(t *testing.T) {
	b := mem.New()
	_, err := openCluster(t, b, "c").Create(t.Context(), idAt(0), seal.Recipients{}.Seal(), 0, strings.NewReader(""),
		func() (catalog.Manifest, error) { return manifestOf(content, noon), nil })
	if err == nil {
		t.Error("a backup without a byte is one")
	}
	wantNothing(t, "an empty stream", b)
}

func TestCreateStoreFails(t *testing.T) {
	for name, c := range map[string]struct {
		arm  func(f *storagetest.Faults)
		left []string // what stays behind
	}{
		"data":                     {func(f *storagetest.Faults) { f.On(storage.VerbPut).Fail(errTest) }, nil},
		"data, in the middle":      {func(f *storagetest.Faults) { f.On(storage.VerbPut).Cut(20, errTest) }, nil},
		"data, answer lost":        {func(f *storagetest.Faults) { f.On(storage.VerbPut).FailLate(errTest) }, []string{plainName}},
		"manifest":                 {func(f *storagetest.Faults) { f.On(storage.VerbPut).Nth(2).Fail(errTest) }, nil},
		"manifest, in the middle":  {func(f *storagetest.Faults) { f.On(storage.VerbPut).Nth(2).Cut(20, errTest) }, nil},
		"manifest, then no Delete": {failTwice(storage.VerbDelete), []string{plainName}},
		"manifest, then no Open":   {failTwice(storage.VerbOpen), []string{plainName}},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, b storage.Bucket) {
				faults := storagetest.Faulty(b)
				c.arm(faults)
				cluster := openCluster(t, faults, "c")
				_, err := tryCreate(t, cluster, idAt(0), manifestOf(content, noon))
				wantError(t, "Create", err, errTest)
				var want []string
				for _, name := range c.left {
					want = append(want, folder("c", idAt(0))+name)
				}
				if got := keys(t, b); !slices.Equal(got, want) {
					t.Errorf("left is %q, want %q", got, want)
				}
				wantIDs(t, load(t, cluster, repository.LoadOptions{}), nil, nil)
				if left, err := cluster.Leftovers(t.Context()); err != nil || len(left) != len(want) {
					t.Errorf("leftovers %+v, %v", left, err)
				}
			})
		})
	}
}

// failTwice loses the manifest, and then what would clear up.
func failTwice(verb storage.Verb) func(f *storagetest.Faults) {
	return func(f *storagetest.Faults) {
		f.On(storage.VerbPut).Nth(2).Fail(errTest)
		f.On(verb).Fail(errors.New("the store has gone away"))
	}
}

// TestCreateAnswerLost: the manifest was stored, so the backup exists whatever Create heard of it, and its data stays.
func TestCreateAnswerLost(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		faults := storagetest.Faulty(b)
		c := openCluster(t, faults, "c")
		faults.On(storage.VerbPut).Nth(2).FailLate(errTest)
		_, err := tryCreate(t, c, idAt(0), manifestOf(content, noon))
		wantError(t, "Create", err, errTest)
		latest, err := load(t, c, repository.LoadOptions{}).Latest()
		if err != nil {
			t.Fatal(err)
		}
		wantContent(t, c, latest)
	})
}

// TestCreateCancelled: what is cancelled late still clears up.
func TestCreateCancelled(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := openCluster(t, b, "c").Create(ctx, idAt(0), seal.Recipients{}.Seal(), 0, sealed(t, content, seal.Recipients{}),
			func() (catalog.Manifest, error) {
				cancel()
				return manifestOf(content, noon), nil
			})
		wantError(t, "Create", err, context.Canceled)
		wantNothing(t, "a cancelled backup", b)
	})
}

func TestCreateTaken(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c := openCluster(t, b, "c")
		first := create(t, c, idAt(0))
		_, err := tryCreate(t, c, idAt(0), manifestOf(content, noon))
		wantError(t, "Create of a taken name", err, storage.ErrExist)
		wantContent(t, c, first)
	})
}

// TestCreateTakenByAnotherSeal: their data has another name, so it is the manifest that decides, and the loser clears up:
// beside a manifest no data would ever be taken for a leftover.
func TestCreateTakenByAnotherSeal(t *testing.T) {
	_, to := pair(t)
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c := openCluster(t, b, "c")
		first := create(t, c, idAt(0))
		before := keys(t, b)
		for what, cause := range map[string]error{"late": nil, "no manifest": errTest} {
			_, err := c.Create(t.Context(), idAt(0), to.Seal(), 0, sealed(t, content, to),
				func() (catalog.Manifest, error) { return manifestOf(content, noon), cause })
			if cause == nil {
				cause = storage.ErrExist
			}
			wantError(t, what, err, cause)
			if got := keys(t, b); !slices.Equal(got, before) {
				t.Errorf("%s: left is %q", what, got)
			}
		}
		wantContent(t, c, first)
	})
}

func TestCreateRace(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c := openCluster(t, b, "c")
		errs := make([]error, 8)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				m := manifestOf(content, noon)
				m.Labels = catalog.Labels{"runner": fmt.Sprint(i)}
				_, errs[i] = tryCreate(t, c, idAt(0), m)
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
		latest, err := load(t, c, repository.LoadOptions{}).Latest()
		if err != nil || latest.Labels["runner"] != fmt.Sprint(winner) {
			t.Fatalf("%d has won, stored is %v, %v", winner, latest.Labels, err)
		}
		wantContent(t, c, latest)
	})
}

func TestFreeID(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		faults := storagetest.Faulty(b)
		c := openCluster(t, faults, "c")
		for i := range 4 {
			id, err := c.FreeID(t.Context(), noon.Add(500*time.Millisecond), 7)
			if want := catalog.NewID(noon.Add(time.Duration(i)*time.Second), 7); err != nil || id != want {
				t.Fatalf("%d: %q, %v, want %q", i, id, err, want)
			}
			if i%2 == 0 {
				create(t, c, id)
			} else { // a killed backup's name is taken too
				put(t, b, folder("c", id)+plainName, content)
			}
		}
		if id, err := c.FreeID(t.Context(), noon, 8); err != nil || id != catalog.NewID(noon, 8) {
			t.Errorf("at another revision: %q, %v", id, err)
		}
		faults.On(storage.VerbList).Fail(errTest)
		_, err := c.FreeID(t.Context(), noon, 7)
		wantError(t, "FreeID", err, errTest)
	})
}
