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
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// unreadable does not return one object.
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

// unlisted does not list what is in a folder.
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

// named are the keys and IDs of all that the catalog reports as unusable.
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

// wantOnlyDamaged reads a cluster in all ways, and fails unless the first backup is found and, if key is not "", it is named.
func wantOnlyDamaged(t *testing.T, c *repository.Cluster, key string) {
	t.Helper()
	cat := load(t, c, repository.LoadOptions{Proofs: true, Log: true})
	if !slices.Contains(ids(cat), idAt(0)) {
		t.Errorf("backup %s is not listed", idAt(0))
	}
	if !strings.Contains(named(cat), key) {
		t.Errorf("%s is not named in %q", key, named(cat))
	}
	_, newest := c.Load(t.Context(), repository.LoadOptions{Newest: 1})
	_, survey := c.Survey(t.Context(), repository.SurveyOptions{Newest: 6, Enough: func([]catalog.Proof) bool { return false }})
	_, tail := c.LogTail(t.Context())
	_, leftovers := c.Leftovers(t.Context())
	_, _, drill := c.LastDrill(t.Context(), noon.Add(time.Hour))
	for name, err := range map[string]error{
		"newest": newest, "survey": survey, "tail": tail, "leftovers": leftovers, "drill": drill,
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnreadableObjects: an object that the store does not return (archived, encrypted by another, of another owner) is one
// damage, whatever it would be, and takes nothing else away.
func TestUnreadableObjects(t *testing.T) {
	owner := newSigner(t)
	signed := repository.Policy{Key: owner.key, Trust: trust(t, owner.public).Trust}
	first, second := folder("c", idAt(0)), folder("c", idAt(7))
	for _, test := range []struct{ key, named string }{
		{second + "manifest.json", second + "manifest.json"},
		{first + tombstoneName, first + tombstoneName},
		{first + "proof-20261121T120000.000Z.json", "proof-20261121T120000.000Z.json"},
		{first + "pin-0123456789abcdef.json", ""}, // it holds, or is ignored
		{segmentKey("c", lineageID(9), 1), segmentKey("c", lineageID(9), 1)},
		{segmentKey("c", lineageID(1), 2), segmentKey("c", lineageID(1), 2)},
		{"c/log/" + lineageID(1) + "/index-0000000000000001.json", ""}, // it saves time
		{"c/log/" + lineageID(1) + "/tombstone-0000000000000002.json", "tombstone-0000000000000002.json"},
	} {
		for _, p := range []repository.Policy{{}, signed} {
			for _, err := range []error{storage.ErrUnreadable, storage.ErrDenied, storage.ErrUnsupported} {
				t.Run(fmt.Sprintf("%s/signed=%t/%v", test.key[len("c/"):], !p.Key.None(), err), func(t *testing.T) {
					b := mem.New()
					c := openWith(t, b, p)
					create(t, c, idAt(0))
					storeSegments(t, c, keyed(newWriter(t, "c", lineageID(1)), p.Key).some(3)...)
					write(t, b, test.key, []byte("junk"))
					wantOnlyDamaged(t, openWith(t, unreadable{b, test.key, err}, p), test.named)
				})
			}
		}
	}
}

// TestUnreadableOrders: a suspension that cannot be read suspends nothing, and a lease is nobody's.
func TestUnreadableOrders(t *testing.T) {
	b := mem.New()
	c := openCluster(t, unreadable{b, "c/suspension.json", storage.ErrDenied}, "c")
	_, err := c.WriteSuspension(t.Context(), repository.Suspension{Suspended: true, Time: noon, By: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := c.Suspension(t.Context()); s.Suspended || !errors.Is(err, catalog.ErrDamaged) {
		t.Errorf("%+v, %v, want damage", s, err)
	}
	write(t, b, "c/leases/backup.json", []byte("of another user"))
	c = openCluster(t, unreadable{b, "c/leases/backup.json", storage.ErrDenied}, "c")
	l, held, err := c.AcquireLease(t.Context(), "backup", "me", time.Minute, noon)
	if err != nil || !held {
		t.Errorf("%+v, %v, %v, want it held", l, held, err)
	}
	if _, held, err := c.RenewLease(t.Context(), l, time.Minute, noon); held || err == nil {
		t.Errorf("renewed: %v, %v, want an error: whose it is now is unknown", held, err)
	}
}

// TestUnlistedFolders: a folder that may not be listed is one damaged backup, or a lineage that has a fault.
func TestUnlistedFolders(t *testing.T) {
	b := mem.New()
	c := openCluster(t, b, "c")
	create(t, c, idAt(0))
	create(t, c, idAt(1))
	storeSegments(t, c, newWriter(t, "c", lineageID(1)).some(3)...)
	for _, dir := range []string{folder("c", idAt(1)), "c/log/" + lineageID(1) + "/"} {
		wantOnlyDamaged(t, openCluster(t, unlisted{b, dir}, "c"), dir)
	}
	if _, err := openCluster(t, unlisted{b, "c/backups/"}, "c").Load(t.Context(), repository.LoadOptions{}); !errors.Is(err, storage.ErrDenied) {
		t.Errorf("%v, want all that cannot be listed to be an error", err)
	}
	names, err := repository.Clusters(t.Context(), unlisted{b, "c/"})
	if err != nil || !slices.Equal(names, []string{"c"}) {
		t.Errorf("clusters %q, %v", names, err)
	}
}

// TestRefusedCallerIsNoDamage: a store that does not accept the caller says nothing of the objects.
func TestRefusedCallerIsNoDamage(t *testing.T) {
	b := mem.New()
	create(t, openCluster(t, b, "c"), idAt(0))
	key := folder("c", idAt(0)) + "manifest.json"
	for _, why := range []error{storage.ErrCredentials, errTest} {
		c := openCluster(t, unreadable{b, key, why}, "c")
		if _, err := c.Load(t.Context(), repository.LoadOptions{}); !errors.Is(err, why) {
			t.Errorf("%v, want %v", err, why)
		}
	}
}
