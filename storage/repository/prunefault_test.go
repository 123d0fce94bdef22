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
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// gated calls do before each request; what it returns in place of nil is the answer.
type gated struct {
	storage.Bucket
	do func(verb storage.Verb, key string) error
}

func (c gated) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	if err := c.do(storage.VerbPut, key); err != nil {
		return storage.Object{}, err
	}
	return c.Bucket.Put(ctx, key, r, o)
}

func (c gated) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	if err := c.do(storage.VerbOpen, key); err != nil {
		return nil, storage.Object{}, err
	}
	return c.Bucket.Open(ctx, key, o)
}

func (c gated) Stat(ctx context.Context, key string) (storage.Object, error) {
	if err := c.do(storage.VerbStat, key); err != nil {
		return storage.Object{}, err
	}
	return c.Bucket.Stat(ctx, key)
}

func (c gated) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	if err := c.do(storage.VerbList, o.Prefix); err != nil {
		return func(yield func(storage.Object, error) bool) { yield(storage.Object{}, err) }
	}
	return c.Bucket.List(ctx, o)
}

func (c gated) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	if err := c.do(storage.VerbDelete, key); err != nil {
		return err
	}
	return c.Bucket.Delete(ctx, key, o)
}

// crowd is a repository of an owner who signs: of cluster c backup 0 is pinned, 1 is locked for an hour, and forged tombstones
// stand for 3 and 4 and for all of the log; c0 and c1 are other clusters.
func crowd(t *testing.T, owner, attacker signer) *mem.Bucket {
	t.Helper()
	b := mem.New()
	policy := repository.Policy{Key: owner.key}
	fill(t, openWith(t, b, policy))
	for _, name := range []string{"c0", "c1"} {
		fill(t, openCluster(t, b, name))
	}
	if _, err := openWith(t, b, policy).Pin(t.Context(), catalog.Pin{Backup: idAt(0), Time: noon}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"manifest.json", plainName} {
		key := folder("c", idAt(1)) + name
		data := read(t, b, key)
		remove(t, b, key)
		o := storage.PutOptions{RetainUntil: time.Now().Add(time.Hour)}
		if _, err := b.Put(t.Context(), key, strings.NewReader(string(data)), o); err != nil {
			t.Fatal(err)
		}
	}
	forge(t, b, attacker)
	return b
}

func forge(t *testing.T, b storage.Bucket, attacker signer) {
	t.Helper()
	forger := openWith(t, b, repository.Policy{Key: attacker.key})
	for _, l := range []string{lineageID(0), lineageID(1)} {
		if err := forger.DeleteLog(t.Context(), repository.LogTombstone{Lineage: l, Upto: 39, Time: noon}); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{3, 4} {
		data, err := repository.Tombstones.Encode(repository.Tombstone{Format: repository.Tombstones.Format, Backup: idAt(i), Time: noon})
		if err != nil {
			t.Fatal(err)
		}
		write(t, b, folder("c", idAt(i))+tombstoneName, data)
	}
}

// others is all that is of no business to a prune of c.
func others(t *testing.T, b storage.Bucket) map[string]string {
	t.Helper()
	all := contents(t, b)
	maps.DeleteFunc(all, func(key, _ string) bool { return strings.HasPrefix(key, "c/") })
	return all
}

// pruneInTheCrowd prunes through b, whatever becomes of it, and then to the end: at once, behind the lock's date, and behind
// the grace of what went then. It looks each time at what must be there.
func pruneInTheCrowd(ctx context.Context, t *testing.T, below, b storage.Bucket, owner signer, accepted error) {
	t.Helper()
	policy := repository.Policy{Key: owner.key}
	foreign := others(t, below)
	_, err := openWith(t, b, policy).Prune(ctx, removal(25), pruneOptions(0), nil)
	if err != nil && !errors.Is(err, accepted) {
		t.Error(err)
	}
	wantInTheCrowd(t, below, owner, foreign, 0, 1, 3, 4)
	prune := func(want ...int) {
		t.Helper()
		if _, err := openWith(t, below, policy).Prune(t.Context(), removal(25), pruneOptions(0), nil); err != nil {
			t.Error(err)
		}
		wantInTheCrowd(t, below, owner, foreign, want...)
	}
	prune(0, 1, 3, 4)
	time.Sleep(2*grace - time.Hour) // nothing that is locked has gone, and what was deleted has
	prune(0, 3, 4)
	time.Sleep(2 * grace)
	prune(0, 3, 4)
	for _, i := range []int{1, 2} {
		others := func(key string) bool { return !strings.HasPrefix(key, folder("c", idAt(i))) }
		if left := slices.DeleteFunc(keys(t, below), others); len(left) > 0 {
			t.Errorf("of backup %d are left %q", i, left)
		}
	}
	for seq := uint64(1); seq <= 40; seq++ {
		if _, err := below.Stat(t.Context(), segmentKey("c", lineageID(0), seq)); (err == nil) != (seq > 25) {
			t.Errorf("segment %d: %v", seq, err)
		}
	}
}

// wantInTheCrowd fails unless these backups are listed and whole, all of the log that is to stay is there, and what is of
// others is as it was.
func wantInTheCrowd(t *testing.T, b storage.Bucket, owner signer, foreign map[string]string, want ...int) {
	t.Helper()
	c := openWith(t, b, repository.Policy{Key: owner.key})
	catalog := load(t, c, repository.LoadOptions{Proofs: true, Log: true})
	listed := ids(catalog)
	for _, i := range want {
		if !slices.Contains(listed, idAt(i)) {
			t.Errorf("backup %d is gone", i)
		}
	}
	if len(catalog.Damaged) > 0 {
		t.Errorf("damaged %q", damagedIDs(catalog))
	}
	for _, backup := range catalog.Backups {
		wantContent(t, c, backup)
	}
	if got := spans(catalog.Lineages[0].Stretches()); got != "1-40" && got != "26-40" {
		t.Errorf("the log has %s", got)
	}
	if got := spans(catalog.Lineages[1].Stretches()); got != "1-1" {
		t.Errorf("the other log has %s", got)
	}
	if diff := cmp.Diff(foreign, others(t, b)); diff != "" {
		t.Error(diff)
	}
}

// inTheBubble runs test a day behind noon, where time passes when nothing else happens.
func inTheBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	newWriter(t, "c", lineageID(0)).next() // zstd's shared encoder is no bubble's
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(noon.AddDate(0, 0, 1)))
		test(t)
	})
}

// TestPruneInterrupted: cancelled at any request, by the person or behind it, a prune leaves what the next one ends: beside
// what is pinned, locked, forged and other clusters'.
func TestPruneInterrupted(t *testing.T) {
	owner, attacker := newSigner(t), newSigner(t)
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
			b := gated{below, func(storage.Verb, string) error {
				if requests++; requests == n {
					cancel()
				}
				return nil
			}}
			pruneInTheCrowd(ctx, t, below, b, owner, context.Canceled)
			if ended = requests < n; t.Failed() {
				t.Errorf("cancelled at request %d", n)
			}
		})
	}
}

// TestPruneDenied: a store that denies each deletion, or one of them, loses nothing: what was deleted is listed no more, and
// goes when that is allowed.
func TestPruneDenied(t *testing.T) {
	owner, attacker := newSigner(t), newSigner(t)
	for n, ended := 0, false; !ended && !t.Failed(); n++ {
		inTheBubble(t, func(t *testing.T) {
			below := crowd(t, owner, attacker)
			deletions := 0
			b := gated{below, func(verb storage.Verb, _ string) error {
				if verb != storage.VerbDelete {
					return nil
				}
				if deletions++; n == 0 || deletions == n {
					return storage.ErrDenied
				}
				return nil
			}}
			pruneInTheCrowd(t.Context(), t, below, b, owner, storage.ErrDenied)
			if ended = n > 0 && deletions < n; t.Failed() {
				t.Errorf("deletion %d was denied", n)
			}
		})
	}
}
