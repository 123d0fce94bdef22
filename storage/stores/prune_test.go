package stores_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestPruneLocked checks, on a real store with locks, that prune leaves locked objects and reports their dates, and
// removes the others; and that a pin holds and can be lifted although none of its objects can be removed.
func TestPruneLocked(t *testing.T) {
	s := objectstores.Minio(t)
	objectstores.Setenv(t, s.Env())
	b := open(t, s.URL(s.Bucket(t, objectstores.Locks), "etcd"))
	open := func(lock time.Duration) *repository.Cluster {
		c, err := repository.OpenWith(b, "prod", records.Policy{Lock: records.Lock{For: lock}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	free, locked := open(0), open(time.Hour)
	began := time.Now().UTC().Add(-time.Hour)
	ids := []catalog.ID{
		take(t, free, began), take(t, locked, began.Add(time.Minute)), take(t, free, began.Add(2*time.Minute)), take(t, free, began.Add(3*time.Minute)),
	}
	_, err := locked.Pin(t.Context(), catalog.Pin{Backup: ids[2], Time: began})
	if err != nil {
		t.Fatal(err)
	}
	killed := "prod/backups/" + string(catalog.NewID(began.Add(-time.Minute), 1)) + "/snapshot.db.zst"
	until := time.Now().Add(time.Hour)
	_, err = b.Put(t.Context(), killed, strings.NewReader("x"), storage.PutOptions{RetainUntil: until})
	if err != nil {
		t.Fatal(err)
	}
	var r repository.Removal
	for _, id := range ids[:3] {
		r.Backups = append(r.Backups, catalog.Tombstone{Backup: id, Reason: "a test", Time: began})
	}
	o := repository.PruneOptions{Grace: time.Nanosecond, Now: time.Now().Add(time.Minute)}
	result, err := free.Prune(t.Context(), r, o, nil)
	if err != nil || !slices.Equal(result.Deleted, ids[:1]) || !slices.Equal(result.Pinned, ids[2:3]) || len(result.Locked) != 2 {
		t.Fatalf("%+v, %v", result, err)
	}
	for i, backup := range []catalog.ID{ids[1], ""} {
		l := result.Locked[i]
		if l.Backup != backup || l.Until.Sub(until).Abs() > time.Minute {
			t.Errorf("locked %+v, want one of backup %q until %s", l, backup, until)
		}
	}
	if result.Locked[1].Key != killed {
		t.Errorf("locked %+v, want %s", result.Locked[1], killed)
	}
	wantListed(t, free, ids[3], ids[2], ids[1])
	lifted, err := locked.Unpin(t.Context(), catalog.Unpin{Backup: ids[2], Time: began})
	if err != nil || len(lifted) != 1 {
		t.Fatalf("%+v, %v", lifted, err)
	}
	result, err = free.Prune(t.Context(), r, o, nil)
	if err != nil || !slices.Equal(result.Deleted, ids[2:3]) {
		t.Errorf("%+v, %v", result, err)
	}
	wantListed(t, free, ids[3], ids[1])
	_, err = b.Stat(t.Context(), "prod/backups/"+string(ids[0])+"/snapshot.db.zst")
	if !errors.Is(err, storage.ErrNotExist) {
		t.Errorf("the data of what was pruned first is there: %v", err)
	}
}

// take stores a small backup and returns its id.
func take(t *testing.T, c *repository.Cluster, at time.Time) catalog.ID {
	t.Helper()
	id := catalog.NewID(at, 7)
	m := catalog.Manifest{
		Started: at, Finished: at, ClusterID: "cafe", EtcdVersion: "3.7.3", Revision: 7,
		Plain: catalog.Blob{Name: "snapshot.db", Size: 100, SHA256: strings.Repeat("ab", 32)},
	}
	_, err := stored.CreateFrom(t.Context(), c, id, seal.Recipients{}.Seal(), bytes.NewReader([]byte("sealed")),
		func() (catalog.Manifest, error) { return m, nil })
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func wantListed(t *testing.T, c *repository.Cluster, want ...catalog.ID) {
	t.Helper()
	cat, err := c.Load(t.Context(), backups.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []catalog.ID
	for _, b := range cat.Backups {
		got = append(got, b.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
}
