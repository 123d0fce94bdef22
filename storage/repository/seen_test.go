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
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// byText compares errors by their texts.
var byText = cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })

// told returns the difference of two surveys, apart from Seen.
func told(a, b repository.Survey) string {
	return cmp.Diff(a, b, cmpopts.IgnoreFields(repository.Survey{}, "Seen"), byText)
}

// unversioned is a Bucket whose listing has no versions, like that of S3.
type unversioned struct{ storage.Bucket }

func (u unversioned) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		for object, err := range u.Bucket.List(ctx, o) {
			object.Version = ""
			if !yield(object, err) {
				return
			}
		}
	}
}

// A survey reads new and damaged backups, and no other a second time.
func TestSurveyReadsNothingTwice(t *testing.T) {
	t.Run("versioned", func(t *testing.T) { readsNothingTwice(t, mem.New()) })
	t.Run("unversioned", func(t *testing.T) { readsNothingTwice(t, unversioned{mem.New()}) })
}

func readsNothingTwice(t *testing.T, bucket storage.Bucket) {
	t.Helper()
	b := storagetest.Faulty(bucket)
	c := stored.OpenCluster(t, b, "prod")
	for n := range 12 {
		stored.Create(t, c, stored.IDAt(n))
		err := c.Append(t.Context(), provenAt(stored.IDAt(n), n))
		if err != nil {
			t.Fatal(err)
		}
	}
	o := repository.SurveyOptions{Newest: 3, Enough: func(latest []catalog.Proof) bool { return len(latest) >= 7 }}
	look := func(what string, want int) {
		t.Helper()
		before := b.Calls(storagetest.VerbOpen)
		s := stored.Survey(t, c, o)
		n := b.Calls(storagetest.VerbOpen) - before
		if n != want {
			t.Errorf("%s: %d reads, want %d", what, n, want)
		}
		anew := stored.Survey(t, c, repository.SurveyOptions{Newest: o.Newest, Enough: o.Enough})
		diff := told(anew, s)
		if diff != "" {
			t.Errorf("%s (-read anew +seen):\n%s", what, diff)
		}
		o.Seen = s.Seen
	}
	look("at first", 3+3+2+8) // three manifests, their proofs, the oldest backup and its proof, and a batch of older proofs
	look("the same", 0)
	stored.Create(t, c, stored.IDAt(12))
	look("another backup", 1+1) // the manifest, and one proof of a batch that now begins one backup later
	stored.Change(t, b, stored.Folder("prod", stored.IDAt(11))+"manifest.json", stored.Flip(20, 1))
	look("one damaged", 1)
	look("still damaged", 1)
}

// If listings have versions, a survey detects a replaced object even if its time and size are the same.
func TestSurveySeesAnotherVersionOfTheSameMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		c := stored.OpenCluster(t, b, "prod")
		stored.Create(t, c, stored.IDAt(0))
		s := stored.Survey(t, c, repository.SurveyOptions{})
		stored.Change(t, b, stored.Folder("prod", stored.IDAt(0))+"manifest.json", stored.Flip(20, 1))
		s = stored.Survey(t, c, repository.SurveyOptions{Seen: s.Seen})
		if len(s.Damaged) != 1 {
			t.Errorf("backups %v, damaged %v", stored.IDs(s.Catalog), s.Damaged)
		}
	})
}

func provenAt(id catalog.ID, n int) catalog.Proof {
	return catalog.Proof{Backup: id, Level: catalog.Opened, Verdict: catalog.Passed, Time: stored.Noon.Add(time.Duration(n) * time.Hour)}
}

// Whatever changes between two surveys, the second returns the same with Seen of the first as without.
func TestSurveySeenIsAsReadAnew(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	all := func(t *testing.T, b storage.Bucket) {
		for seed := range seeds {
			name := fmt.Sprintf("c%d", seed)
			c, random := stored.OpenCluster(t, b, name), rand.New(rand.NewPCG(seed, 0))
			var seen backups.Seen
			taken := 0
			for range 40 {
				happen(t, b, c, random, &taken)
				o := repository.SurveyOptions{Newest: 4, Enough: func(latest []catalog.Proof) bool { return len(latest) > 3 }}
				anew := stored.Survey(t, c, o)
				o.Seen = seen
				s := stored.Survey(t, c, o)
				diff := told(anew, s)
				if diff != "" {
					t.Fatalf("seed %d, %d backups (-read anew +seen):\n%s", seed, taken, diff)
				}
				seen = s.Seen
			}
		}
	}
	stored.EachStore(t, all)
	t.Run("unversioned", func(t *testing.T) { all(t, unversioned{mem.New()}) })
}

// happen makes one random change to a cluster, mostly to its newest backups.
func happen(t *testing.T, b storage.Bucket, c *repository.Cluster, random *rand.Rand, taken *int) {
	t.Helper()
	if *taken == 0 || random.IntN(4) == 0 {
		stored.Create(t, c, stored.IDAt(*taken))
		*taken++
		return
	}
	n := *taken - 1 - random.IntN(min(*taken, 6))
	id := stored.IDAt(n)
	manifest, snapshot := stored.Folder(c.Name(), id)+"manifest.json", stored.Folder(c.Name(), id)+"snapshot.db.zst"
	_, err := b.Stat(t.Context(), manifest)
	if err != nil {
		return // it was deleted
	}
	switch random.IntN(9) {
	case 0:
		_ = c.Append(t.Context(), provenAt(id, random.IntN(1000))) // may fail, if the proof exists
	case 1:
		_, _ = c.Pin(t.Context(), catalog.Pin{Backup: id, Time: stored.Noon, Reason: "held"}) // may fail, if the backup is deleted
	case 2:
		_, _ = c.Unpin(t.Context(), catalog.Unpin{Backup: id, Time: stored.Noon})
	case 3:
		_ = c.Delete(t.Context(), catalog.Tombstone{Backup: id, Time: stored.Noon})
	case 4:
		stored.Change(t, b, manifest, stored.Flip(random.IntN(50), 1)) // keeps the size
	case 5:
		stored.Put(t, b, manifest, stored.Framed(fmt.Sprintf(`{"format":1,"n":%d}`, n)))
	case 6:
		stored.Put(t, b, snapshot, stored.Noise(random.IntN(40)))
	case 7: // replace a proof
		p := provenAt(id, random.IntN(10))
		p.Format = catalog.Proofs.Format
		document, err := catalog.Proofs.Encode(p)
		if err != nil {
			t.Fatal(err)
		}
		stored.Put(t, b, stored.Folder(c.Name(), id)+"proof-20261122T000000.000Z.json", document)
	case 8: // a pin with junk as its unpin
		stored.Put(t, b, stored.Folder(c.Name(), id)+"pin-0123456789abcdef.json", encodedPin(t, id))
		stored.Put(t, b, stored.Folder(c.Name(), id)+"unpin-0123456789abcdef.json", stored.Noise(10))
	}
}
