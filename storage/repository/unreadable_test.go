package repository_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/suspension"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// unreadable is a Bucket that refuses to open one object.
type unreadable struct {
	storage.Bucket
	key string
	err error
}

func (u unreadable) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	if key == u.key {
		return nil, storage.Object{}, fmt.Errorf("open %q: %w", key, u.err)
	}
	return u.Bucket.Open(ctx, key, o)
}

// unlisted is a Bucket that refuses to list one folder.
type unlisted struct {
	storage.Bucket
	folder string
}

func (u unlisted) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		skipped := false
		for obj, err := range u.Bucket.List(ctx, o) {
			if strings.HasPrefix(obj.Key, u.folder) {
				if skipped {
					continue
				}
				skipped = true
				obj, err = storage.Object{}, &storage.UnlistedError{Prefix: u.folder, Err: fmt.Errorf("list %q: %w", u.folder, storage.ErrDenied)}
			}
			if !yield(obj, err) {
				return
			}
		}
	}
}

// named returns the keys and IDs that the catalog reports as unusable.
func named(c catalog.Catalog) string {
	var all []string
	for _, d := range slices.Concat(c.Damaged, c.Untrusted, c.Ignored) {
		all = append(all, d.Err.Error())
	}
	for _, l := range c.Lineages {
		for _, f := range l.Faults {
			all = append(all, f.Err.Error())
		}
	}
	return strings.Join(all, "\n")
}

// wantOnlyDamaged reads a cluster in all ways, and fails unless the first backup is found and key, if not "", is named.
func wantOnlyDamaged(t *testing.T, c *repository.Cluster, key string) {
	t.Helper()
	cat := stored.Load(t, c, backups.LoadOptions{Proofs: true, Log: true})
	if !slices.Contains(stored.IDs(cat), stored.IDAt(0)) {
		t.Errorf("backup %s is not listed", stored.IDAt(0))
	}
	if !strings.Contains(named(cat), key) {
		t.Errorf("%s is not named in %q", key, named(cat))
	}
	_, newest := c.Load(t.Context(), backups.LoadOptions{Newest: 1})
	_, survey := c.Survey(t.Context(), repository.SurveyOptions{Newest: 6, Enough: func([]catalog.Proof) bool { return false }})
	_, tail := c.Log().Tail(t.Context())
	_, leftovers := c.Leftovers(t.Context())
	_, drill := c.LastDrill(t.Context(), stored.Noon.Add(time.Hour))
	for name, err := range map[string]error{
		"newest": newest, "survey": survey, "tail": tail, "leftovers": leftovers, "drill": drill,
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnreadableObjects checks that an object that the store refuses to return (archived, encrypted with another key, of
// another owner) counts as damaged, and that everything else is still read.
func TestUnreadableObjects(t *testing.T) {
	owner := stored.NewSigner(t)
	signed := records.Policy{Key: owner.Key, Trust: stored.Trust(t, owner.Public).Trust}
	first, second := stored.Folder("c", stored.IDAt(0)), stored.Folder("c", stored.IDAt(7))
	for _, test := range []struct{ key, named string }{
		{second + "manifest.json", second + "manifest.json"},
		{first + stored.TombstoneName, first + stored.TombstoneName},
		{first + "proof-20261121T120000.000Z.json", "proof-20261121T120000.000Z.json"},
		{first + "pin-0123456789abcdef.json", ""}, // the pin holds, or is ignored
		{stored.SegmentKey("c", stored.LineageID(9), 1), stored.SegmentKey("c", stored.LineageID(9), 1)},
		{stored.SegmentKey("c", stored.LineageID(1), 2), stored.SegmentKey("c", stored.LineageID(1), 2)},
		{"c/log/" + stored.LineageID(1) + "/index-0000000000000001.json", ""}, // an index only saves time
		{"c/log/" + stored.LineageID(1) + "/tombstone-0000000000000002.json", "tombstone-0000000000000002.json"},
	} {
		for _, p := range []records.Policy{{}, signed} {
			for _, err := range []error{storage.ErrUnreadable, storage.ErrDenied, storage.ErrUnsupported} {
				t.Run(fmt.Sprintf("%s/signed=%t/%v", test.key[len("c/"):], !p.Key.None(), err), func(t *testing.T) {
					b := mem.New()
					c := stored.OpenWith(t, b, p)
					stored.Create(t, c, stored.IDAt(0))
					stored.StoreSegments(t, c, stored.Keyed(stored.NewWriter(t, "c", stored.LineageID(1)), p.Key).Some(3)...)
					stored.Put(t, b, test.key, []byte("junk"))
					wantOnlyDamaged(t, stored.OpenWith(t, unreadable{b, test.key, err}, p), test.named)
				})
			}
		}
	}
}

// TestUnreadableOrders checks that an unreadable suspension suspends nothing, and that an unreadable lease can be acquired but
// not renewed.
func TestUnreadableOrders(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, unreadable{b, "c/suspension.json", storage.ErrDenied}, "c")
	_, err := c.Services().Write(t.Context(), suspension.Suspension{Suspended: true, Time: stored.Noon, By: "test"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Services().Read(t.Context())
	if s.Suspended || !errors.Is(err, catalog.ErrDamaged) {
		t.Errorf("%+v, %v, want damage", s, err)
	}
	stored.Put(t, b, "c/leases/backup.json", []byte("of another user"))
	c = stored.OpenCluster(t, unreadable{b, "c/leases/backup.json", storage.ErrDenied}, "c")
	l, held, err := c.Leases().Acquire(t.Context(), "backup", "me", lease.Term{TTL: time.Minute, Now: stored.Noon})
	if err != nil || !held {
		t.Errorf("%+v, %v, %v, want it held", l, held, err)
	}
	_, held, err = c.Leases().Renew(t.Context(), l, time.Minute, stored.Noon)
	if held || err == nil {
		t.Errorf("renewed: %v, %v, want an error: whose it is now is unknown", held, err)
	}
}

// TestUnlistedFolders checks that a folder that the store refuses to list is a damaged backup, or a lineage with a fault.
func TestUnlistedFolders(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	stored.Create(t, c, stored.IDAt(0))
	stored.Create(t, c, stored.IDAt(1))
	stored.StoreSegments(t, c, stored.NewWriter(t, "c", stored.LineageID(1)).Some(3)...)
	for _, dir := range []string{stored.Folder("c", stored.IDAt(1)), "c/log/" + stored.LineageID(1) + "/"} {
		wantOnlyDamaged(t, stored.OpenCluster(t, unlisted{b, dir}, "c"), dir)
	}
	_, err := stored.OpenCluster(t, unlisted{b, "c/backups/"}, "c").Load(t.Context(), backups.LoadOptions{})
	if !errors.Is(err, storage.ErrDenied) {
		t.Errorf("%v, want all that cannot be listed to be an error", err)
	}
	names, err := repository.Clusters(t.Context(), unlisted{b, "c/"})
	if err != nil || !slices.Equal(names, []string{"c"}) {
		t.Errorf("clusters %q, %v", names, err)
	}
}

// TestRefusedCallerIsNoDamage checks that an error about the caller's credentials does not count as damage.
func TestRefusedCallerIsNoDamage(t *testing.T) {
	b := mem.New()
	stored.Create(t, stored.OpenCluster(t, b, "c"), stored.IDAt(0))
	key := stored.Folder("c", stored.IDAt(0)) + "manifest.json"
	for _, why := range []error{storage.ErrCredentials, stored.ErrTest} {
		c := stored.OpenCluster(t, unreadable{b, key, why}, "c")
		_, err := c.Load(t.Context(), backups.LoadOptions{})
		if !errors.Is(err, why) {
			t.Errorf("%v, want %v", err, why)
		}
	}
}
