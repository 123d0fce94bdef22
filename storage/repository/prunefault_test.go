package repository_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// gated is a Bucket that calls do before each request. An error of do is the answer.
type gated struct {
	storage.Bucket
	do func(verb storagetest.Verb, key string) error
}

func (c gated) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	err := c.do(storagetest.VerbPut, key)
	if err != nil {
		return storage.Object{}, err
	}
	return c.Bucket.Put(ctx, key, r, o)
}

func (c gated) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	err := c.do(storagetest.VerbOpen, key)
	if err != nil {
		return nil, storage.Object{}, err
	}
	return c.Bucket.Open(ctx, key, o)
}

func (c gated) Stat(ctx context.Context, key string) (storage.Object, error) {
	err := c.do(storagetest.VerbStat, key)
	if err != nil {
		return storage.Object{}, err
	}
	return c.Bucket.Stat(ctx, key)
}

func (c gated) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	err := c.do(storagetest.VerbList, o.Prefix)
	if err != nil {
		return func(yield func(storage.Object, error) bool) { yield(storage.Object{}, err) }
	}
	return c.Bucket.List(ctx, o)
}

func (c gated) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	err := c.do(storagetest.VerbDelete, key)
	if err != nil {
		return err
	}
	return c.Bucket.Delete(ctx, key, o)
}

// crowd returns a repository that the owner signs. In cluster c, backup 0 is pinned, backup 1 is locked for an hour, and the
// attacker has forged tombstones of backups 3 and 4 and of the whole log. c0 and c1 are other clusters.
func crowd(t *testing.T, owner, attacker stored.Signer) *mem.Bucket {
	t.Helper()
	b := mem.New()
	policy := records.Policy{Key: owner.Key}
	fill(t, stored.OpenWith(t, b, policy))
	for _, name := range []string{"c0", "c1"} {
		fill(t, stored.OpenCluster(t, b, name))
	}
	_, err := stored.OpenWith(t, b, policy).Pin(t.Context(), catalog.Pin{Backup: stored.IDAt(0), Time: stored.Noon})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"manifest.json", stored.PlainName} {
		key := stored.Folder("c", stored.IDAt(1)) + name
		data := stored.Get(t, b, key)
		stored.Remove(t, b, key)
		o := storage.PutOptions{RetainUntil: time.Now().Add(time.Hour)}
		_, err := b.Put(t.Context(), key, strings.NewReader(string(data)), o)
		if err != nil {
			t.Fatal(err)
		}
	}
	forge(t, b, attacker)
	return b
}

func forge(t *testing.T, b storage.Bucket, attacker stored.Signer) {
	t.Helper()
	forger := stored.OpenWith(t, b, records.Policy{Key: attacker.Key})
	for _, l := range []string{stored.LineageID(0), stored.LineageID(1)} {
		err := forger.Log().Delete(t.Context(), log.Tombstone{Lineage: l, Upto: 39, Time: stored.Noon})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{3, 4} {
		data, err := catalog.Tombstones.Encode(catalog.Tombstone{Format: catalog.Tombstones.Format, Backup: stored.IDAt(i), Time: stored.Noon})
		if err != nil {
			t.Fatal(err)
		}
		stored.Put(t, b, stored.Folder("c", stored.IDAt(i))+stored.TombstoneName, data)
	}
}

// others returns the objects outside cluster c.
func others(t *testing.T, b storage.Bucket) map[string]string {
	t.Helper()
	all := stored.Contents(t, b)
	maps.DeleteFunc(all, func(key, _ string) bool { return strings.HasPrefix(key, "c/") })
	return all
}

// pruneInTheCrowd prunes through b, which may fail with the accepted error. It then completes the prune through below: at once,
// after the lock has ended, and after the grace of the backup that was locked. Each time it checks what must be listed.
func pruneInTheCrowd(ctx context.Context, t *testing.T, below, b storage.Bucket, owner stored.Signer, accepted error) {
	t.Helper()
	policy := records.Policy{Key: owner.Key}
	foreign := others(t, below)
	_, err := stored.OpenWith(t, b, policy).Prune(ctx, removal(25), pruneOptions(0), nil)
	if err != nil && !errors.Is(err, accepted) {
		t.Error(err)
	}
	wantInTheCrowd(t, below, owner, foreign, 0, 1, 3, 4)
	prune := func(want ...int) {
		t.Helper()
		_, err := stored.OpenWith(t, below, policy).Prune(t.Context(), removal(25), pruneOptions(0), nil)
		if err != nil {
			t.Error(err)
		}
		wantInTheCrowd(t, below, owner, foreign, want...)
	}
	prune(0, 1, 3, 4)
	time.Sleep(2*stored.Grace - time.Hour) // the locked objects are still there, the deleted ones are removed
	prune(0, 3, 4)
	time.Sleep(2 * stored.Grace)
	prune(0, 3, 4)
	for _, i := range []int{1, 2} {
		others := func(key string) bool { return !strings.HasPrefix(key, stored.Folder("c", stored.IDAt(i))) }
		left := slices.DeleteFunc(stored.Keys(t, below), others)
		if len(left) > 0 {
			t.Errorf("of backup %d are left %q", i, left)
		}
	}
	for seq := uint64(1); seq <= 40; seq++ {
		_, err := below.Stat(t.Context(), stored.SegmentKey("c", stored.LineageID(0), seq))
		if (err == nil) != (seq > 25) {
			t.Errorf("segment %d: %v", seq, err)
		}
	}
}

// wantInTheCrowd fails unless these backups are listed and whole, the log that must stay is complete, and the objects of other
// clusters are unchanged.
func wantInTheCrowd(t *testing.T, b storage.Bucket, owner stored.Signer, foreign map[string]string, want ...int) {
	t.Helper()
	c := stored.OpenWith(t, b, records.Policy{Key: owner.Key})
	catalog := stored.Load(t, c, backups.LoadOptions{Proofs: true, Log: true})
	listed := stored.IDs(catalog)
	for _, i := range want {
		if !slices.Contains(listed, stored.IDAt(i)) {
			t.Errorf("backup %d is gone", i)
		}
	}
	if len(catalog.Damaged) > 0 {
		t.Errorf("damaged %q", stored.DamagedIDs(catalog))
	}
	for _, backup := range catalog.Backups {
		stored.WantContent(t, c, backup)
	}
	got := stored.Spans(catalog.Lineages[0].Stretches())
	if got != "1-40" && got != "26-40" {
		t.Errorf("the log has %s", got)
	}
	got = stored.Spans(catalog.Lineages[1].Stretches())
	if got != "1-1" {
		t.Errorf("the other log has %s", got)
	}
	diff := cmp.Diff(foreign, others(t, b))
	if diff != "" {
		t.Error(diff)
	}
}

// inTheBubble runs test in a synctest bubble, a day after noon.
func inTheBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	stored.NewWriter(t, "c", stored.LineageID(0)).Next() // starts zstd's shared encoder outside the bubble
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(stored.Noon.AddDate(0, 0, 1)))
		test(t)
	})
}

// TestPruneInterrupted checks that a prune cancelled at any request can be completed by the next one, in a repository with
// pinned and locked backups, forged tombstones and other clusters.
func TestPruneInterrupted(t *testing.T) {
	owner, attacker := stored.NewSigner(t), stored.NewSigner(t)
	each := 1
	if testing.Short() {
		each = 11
	}
	for n, ended := 1, false; !ended && !t.Failed(); n += each {
		inTheBubble(t, func(t *testing.T) {
			below := crowd(t, owner, attacker)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			requests := 0
			b := gated{below, func(storagetest.Verb, string) error {
				requests++
				if requests == n {
					cancel()
				}
				return nil
			}}
			pruneInTheCrowd(ctx, t, below, b, owner, context.Canceled)
			ended = requests < n
			if t.Failed() {
				t.Errorf("cancelled at request %d", n)
			}
		})
	}
}

// TestPruneDenied checks a prune in a store that denies all deletions, or one of them. Nothing else is lost, deleted backups
// are no longer listed, and a later prune removes their objects once deletions are allowed.
func TestPruneDenied(t *testing.T) {
	owner, attacker := stored.NewSigner(t), stored.NewSigner(t)
	for n, ended := 0, false; !ended && !t.Failed(); n++ {
		inTheBubble(t, func(t *testing.T) {
			below := crowd(t, owner, attacker)
			deletions := 0
			b := gated{below, func(verb storagetest.Verb, _ string) error {
				if verb != storagetest.VerbDelete {
					return nil
				}
				deletions++
				if n == 0 || deletions == n {
					return storage.ErrDenied
				}
				return nil
			}}
			pruneInTheCrowd(t.Context(), t, below, b, owner, storage.ErrDenied)
			ended = n > 0 && deletions < n
			if t.Failed() {
				t.Errorf("deletion %d was denied", n)
			}
		})
	}
}
