package catalog_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

var validClusters = []string{
	"a", "0", "A.b_c-d", "a..b", "a.", "con", "backups", "prod-eu-1.example.com", strings.Repeat("x", 100),
}

var invalidClusters = []string{
	"", ".", "..", ".a", "-a", "_a", "a/b", "a/", "/a", "a b", "a\n", "\na", "a\x00", "ä", "a\\b", "a:b", "a%2fb", "a\xff",
	strings.Repeat("x", 101),
}

func TestClusterNames(t *testing.T) {
	for _, name := range validClusters {
		err := catalog.ValidCluster(name)
		if err != nil {
			t.Errorf("%q: %v", name, err)
		}
		c := stored.OpenCluster(t, mem.New(), name)
		if c.Name() != name {
			t.Errorf("%q is called %q", name, c.Name())
		}
	}
	for _, name := range invalidClusters {
		err := catalog.ValidCluster(name)
		if !errors.Is(err, catalog.ErrName) {
			t.Errorf("%q: %v", name, err)
		}
		_, err = repository.Open(mem.New(), name)
		if !errors.Is(err, catalog.ErrName) {
			t.Errorf("Open %q: %v", name, err)
		}
	}
}

// FuzzClusterName checks that a backup of a cluster with any valid name is stored in a folder of its own and found again.
func FuzzClusterName(f *testing.F) {
	for _, name := range append(validClusters, invalidClusters...) {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if catalog.ValidCluster(name) != nil {
			return
		}
		b := mem.New()
		stored.Create(t, stored.OpenCluster(t, b, name), stored.IDAt(0))
		for _, key := range stored.Keys(t, b) {
			if storage.ValidKey(key) != nil || !strings.HasPrefix(key, name+"/backups/") && key != name+"/repository.json" {
				t.Errorf("%q has the key %q", name, key)
			}
		}
		got, err := repository.Clusters(t.Context(), b)
		if err != nil || !slices.Equal(got, []string{name}) {
			t.Errorf("%q is found as %q, %v", name, got, err)
		}
	})
}

var invalidIDs = []string{
	"", "-", "20261121T092433Z", "20261121T092433Z-", "20261121T092433Z-abcd", "20261121T092433Z-000000000000ABCD",
	"20261121T092433Z-000000000000abcd ", " 20261121T092433Z-000000000000abcd", "20261121T092433Z-000000000000abcd\n",
	"20261121T092433Z-000000000000abcd/", "20261121T092433Z-0000000000000abcd", "20261121T092433-000000000000abcd",
	"20261121T092433.5Z-000000000000abcd", "20261121T092433,5Z-000000000000abcd", "20261131T092433Z-000000000000abcd",
	"20261121T092460Z-000000000000abcd", "20261121T252433Z-000000000000abcd", "2026-1121T092433Z-000000000000abcd",
	"20261121T092433Z-+00000000000abcd", "20261121T092433Z--00000000000abcd", "20261121T092433Z--00000000000000a",
	"20261121T092433Z-ffffffffffffffff", "20261121T092433Z-0x0000000000abcd", "20261121T092433Z-00000000_000abcd",
	"../../../../etc/passwd",
}

func TestParseID(t *testing.T) {
	for _, text := range []string{
		"20261121T092433Z-000000000000abcd", "20240229T235959Z-0000000000000001", "00010101T000000Z-7fffffffffffffff",
	} {
		id, err := catalog.ParseID(text)
		if err != nil || string(id) != text {
			t.Errorf("%q: %q, %v", text, id, err)
		}
	}
	for _, text := range invalidIDs {
		id, err := catalog.ParseID(text)
		if !errors.Is(err, catalog.ErrName) || id != "" {
			t.Errorf("%q: %q, %v", text, id, err)
		}
	}
	got := catalog.ID("x").Started()
	if !got.IsZero() {
		t.Errorf("a name without a time has begun at %v", got)
	}
}

// TestIDsSort checks that IDs sort by second in any time zone, then by revision.
func TestPartsOfAMalformedID(t *testing.T) {
	for _, id := range []catalog.ID{"", "20260101T000000Z", "20260101T000000Z-xyz", "20260101T000000Z--000000000000001", "20260101T000000Z-ffffffffffffffff", "x-0000000000000001"} {
		if !id.Started().IsZero() || id.Revision() != 0 {
			t.Errorf("%q began at %v, at revision %d", id, id.Started(), id.Revision())
		}
	}
}

func TestIDsSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type backup struct{ second, revision int64 }
		draw := func(label string) backup {
			return backup{
				rapid.Int64Range(-62135596800, 253402300799).Draw(t, label+" second"), // the years 1 to 9999
				rapid.Int64Range(0, 1<<63-1).Draw(t, label+" revision"),
			}
		}
		one, two := draw("one"), draw("two")
		id := func(b backup) catalog.ID {
			zone := time.FixedZone("", rapid.IntRange(-12, 14).Draw(t, "zone")*3600)
			id := catalog.NewID(time.Unix(b.second, 999).In(zone), b.revision)
			parsed, err := catalog.ParseID(string(id))
			if err != nil || parsed != id || id.Started().Unix() != b.second {
				t.Fatalf("%q of %+v: %q, %v, started %v", id, b, parsed, err, id.Started())
			}
			return id
		}
		less := one.second < two.second || one.second == two.second && one.revision < two.revision
		a, b := id(one), id(two)
		if a < b != less {
			t.Fatalf("%q < %q is %v for %+v and %+v", a, b, a < b, one, two)
		}
	})
}

// FuzzParseID checks that NewID returns every valid ID, and that it can be a part of a key.
func FuzzParseID(f *testing.F) {
	f.Add("20261121T092433Z-000000000000abcd")
	for _, text := range invalidIDs {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := catalog.ParseID(text)
		if err != nil {
			return
		}
		_, hex, _ := strings.Cut(text, "-")
		revision, err := strconv.ParseInt(hex, 16, 64)
		if err != nil || revision < 0 || catalog.NewID(id.Started(), revision) != id || string(id) != text {
			t.Errorf("%q is %q of %v, %d, %v", text, id, id.Started(), revision, err)
		}
		for _, key := range []string{stored.Folder("c", id) + "manifest.json", stored.Folder("c", id) + stored.PlainName} {
			err := storage.ValidKey(key)
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// TestClusters checks that Clusters returns each name once and in order, and skips objects of other programs.
func TestClusters(t *testing.T) {
	names := []string{
		"0", "9", "A", "Z", "a", "a-", "a-b", "a-b-c", "a.", "a.b", "a0", "a0b", "a1", "aa", "a_", "cluster1", "cluster10",
		"z", strings.Repeat("z", 100),
	}
	slices.Sort(names)
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		got, err := repository.Clusters(t.Context(), b)
		if len(got) > 0 || err != nil {
			t.Errorf("an empty repository has %q, %v", got, err)
		}
		for _, key := range []string{
			"README", "zz", "a00", "lost+found/x", ".hidden/backups/x", "-x/y", "ä/x", "a b/c", "_/x", strings.Repeat("y", 101) + "/x",
		} {
			stored.Put(t, b, key, []byte("a stranger's"))
		}
		for _, name := range names {
			stored.Create(t, stored.OpenCluster(t, b, name), stored.IDAt(0))
			stored.Create(t, stored.OpenCluster(t, b, name), stored.IDAt(1))
		}
		got, err = repository.Clusters(t.Context(), b)
		if err != nil || !slices.Equal(got, names) {
			t.Errorf("got  %q, %v\nwant %q", got, err, names)
		}
	})
}

// TestClustersCost checks that Clusters makes one listing for each cluster and one more.
func TestClustersCost(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	for _, name := range []string{"a", "b", "c"} {
		for i := range 20 {
			stored.Create(t, stored.OpenCluster(t, b, name), stored.IDAt(i))
		}
	}
	before := b.Calls(storagetest.VerbList)
	_, err := repository.Clusters(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	got := b.Calls(storagetest.VerbList) - before
	if got != 4 {
		t.Errorf("%d listings", got)
	}
	b.On(storagetest.VerbList).Nth(2).Fail(stored.ErrTest)
	_, err = repository.Clusters(t.Context(), b)
	stored.WantError(t, "Clusters", err, stored.ErrTest)
}

// TestNeighbours checks that a cluster never includes the backups of another, however similar their names are.
func TestNeighbours(t *testing.T) {
	names := []string{"a", "a0", "a-b", "a.b", "cluster1", "cluster10", "cluster1-", "Cluster1"}
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		for i, name := range names {
			c := stored.OpenCluster(t, b, name)
			stored.Create(t, c, stored.IDAt(i))
			stored.Put(t, b, stored.Folder(name, stored.IDAt(100+i))+stored.PlainName, []byte("left"))
			id, err := c.FreeID(t.Context(), stored.IDAt(i+1))
			if err != nil || id != stored.IDAt(i+1) {
				t.Errorf("%s: the next name is %q, %v", name, id, err)
			}
		}
		for i, name := range names {
			c := stored.OpenCluster(t, b, name)
			cat := stored.Load(t, c, backups.LoadOptions{Proofs: true})
			stored.WantIDs(t, cat, []catalog.ID{stored.IDAt(i)}, nil)
			if cat.Cluster != name {
				t.Errorf("the catalog of %s is of %s", name, cat.Cluster)
			}
			left, err := c.Sweep(t.Context(), 0, time.Now().Add(24*time.Hour))
			want := stored.Folder(name, stored.IDAt(100+i)) + stored.PlainName
			if err != nil || len(left) != 1 || left[0].Key != want {
				t.Errorf("%s has swept %+v, %v", name, left, err)
			}
		}
	})
}
