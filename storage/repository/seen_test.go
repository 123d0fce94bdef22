package repository_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

// told compares what two surveys say, and not what they have seen.
func told(a, b repository.Survey) string {
	return cmp.Diff(a, b, cmpopts.IgnoreFields(repository.Survey{}, "Seen"),
		cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) }))
}

// unversioned is a Bucket whose listing has no versions, as that of S3.
type unversioned struct{ storage.Bucket }

func (u unversioned) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		for object, err := range u.Bucket.List(ctx, o) {
			if object.Version = ""; !yield(object, err) {
				return
			}
		}
	}
}

// A survey reads what is new, and again what was damaged, but nothing twice.
func TestSurveyReadsNothingTwice(t *testing.T) {
	t.Run("versioned", func(t *testing.T) { readsNothingTwice(t, mem.New()) })
	t.Run("unversioned", func(t *testing.T) { readsNothingTwice(t, unversioned{mem.New()}) })
}

func readsNothingTwice(t *testing.T, bucket storage.Bucket) {
	t.Helper()
	b := storagetest.Faulty(bucket)
	c := openCluster(t, b, "prod")
	for n := range 12 {
		create(t, c, idAt(n))
		if err := c.Append(t.Context(), provenAt(idAt(n), n)); err != nil {
			t.Fatal(err)
		}
	}
	o := repository.SurveyOptions{Newest: 3, Enough: func(latest []catalog.Proof) bool { return len(latest) >= 7 }}
	look := func(what string, want int) {
		t.Helper()
		before := b.Calls(storage.VerbOpen)
		s := survey(t, c, o)
		if n := b.Calls(storage.VerbOpen) - before; n != want {
			t.Errorf("%s: %d reads, want %d", what, n, want)
		}
		anew := survey(t, c, repository.SurveyOptions{Newest: o.Newest, Enough: o.Enough})
		if diff := told(anew, s); diff != "" {
			t.Errorf("%s (-read anew +seen):\n%s", what, diff)
		}
		o.Seen = s.Seen
	}
	look("at first", 3+3+2+8) // manifests, their proofs, the oldest with its own, and a batch of older ones
	look("the same", 0)
	create(t, c, idAt(12))
	look("another backup", 1+1) // and the next proof, in the batch that now begins with that of the tenth
	change(t, b, folder("prod", idAt(11))+"manifest.json", flip(20, 1))
	look("one damaged", 1)
	look("still damaged", 1)
}

// Where the listing has versions, one that came while the clock stood still is another all the same.
func TestSurveySeesAnotherVersionOfTheSameMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		c := openCluster(t, b, "prod")
		create(t, c, idAt(0))
		s := survey(t, c, repository.SurveyOptions{})
		change(t, b, folder("prod", idAt(0))+"manifest.json", flip(20, 1))
		if s = survey(t, c, repository.SurveyOptions{Seen: s.Seen}); len(s.Damaged) != 1 {
			t.Errorf("backups %v, damaged %v", ids(s.Catalog), s.Damaged)
		}
	})
}

func provenAt(id catalog.ID, n int) catalog.Proof {
	return catalog.Proof{Backup: id, Level: catalog.Opened, Verdict: catalog.Passed, Time: noon.Add(time.Duration(n) * time.Hour)}
}

// Whatever happens between two surveys, the second says the same with what the first has seen as without it.
func TestSurveySeenIsAsReadAnew(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	all := func(t *testing.T, b storage.Bucket) {
		for seed := range seeds {
			name := fmt.Sprintf("c%d", seed)
			c, random := openCluster(t, b, name), rand.New(rand.NewPCG(seed, 0))
			var seen repository.Seen
			taken := 0
			for range 40 {
				happen(t, b, c, random, &taken)
				o := repository.SurveyOptions{Newest: 4, Enough: func(latest []catalog.Proof) bool { return len(latest) > 3 }}
				anew := survey(t, c, o)
				o.Seen = seen
				s := survey(t, c, o)
				if diff := told(anew, s); diff != "" {
					t.Fatalf("seed %d, %d backups (-read anew +seen):\n%s", seed, taken, diff)
				}
				seen = s.Seen
			}
		}
	}
	eachStore(t, all)
	t.Run("unversioned", func(t *testing.T) { all(t, unversioned{mem.New()}) })
}

// happen does one thing to a cluster, mostly to its newest backups.
func happen(t *testing.T, b storage.Bucket, c *repository.Cluster, random *rand.Rand, taken *int) {
	t.Helper()
	if *taken == 0 || random.IntN(4) == 0 {
		create(t, c, idAt(*taken))
		*taken++
		return
	}
	n := *taken - 1 - random.IntN(min(*taken, 6))
	id := idAt(n)
	manifest, snapshot := folder(c.Name(), id)+"manifest.json", folder(c.Name(), id)+"snapshot.db.zst"
	if _, err := b.Stat(t.Context(), manifest); err != nil {
		return // it was deleted
	}
	switch random.IntN(9) {
	case 0:
		_ = c.Append(t.Context(), provenAt(id, random.IntN(1000))) // one that is there already is refused
	case 1:
		_, _ = c.Pin(t.Context(), catalog.Pin{Backup: id, Time: noon, Reason: "held"}) // so is one of what is gone
	case 2:
		_, _ = c.Unpin(t.Context(), catalog.Unpin{Backup: id, Time: noon})
	case 3:
		_ = c.Delete(t.Context(), repository.Tombstone{Backup: id, Time: noon})
	case 4:
		change(t, b, manifest, flip(random.IntN(50), 1)) // of the same size
	case 5:
		put(t, b, manifest, framed(fmt.Sprintf(`{"format":1,"n":%d}`, n)))
	case 6:
		put(t, b, snapshot, noise(random.IntN(40)))
	case 7: // a proof that another takes the place of
		p := provenAt(id, random.IntN(10))
		p.Format = catalog.Proofs.Format
		document, err := catalog.Proofs.Encode(p)
		if err != nil {
			t.Fatal(err)
		}
		put(t, b, folder(c.Name(), id)+"proof-20261122T000000.000Z.json", document)
	case 8: // a pin that junk seems to lift
		put(t, b, folder(c.Name(), id)+"pin-0123456789abcdef.json", encodedPin(t, id))
		put(t, b, folder(c.Name(), id)+"unpin-0123456789abcdef.json", noise(10))
	}
}
