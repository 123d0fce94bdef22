package repository_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/copying"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// Two repositories contain the same backups, segments and signatures. A tombstone of one deletes nothing in the other, even if
// an attacker copies it there.
func TestDeletionsCountInOneRepository(t *testing.T) {
	owner := stored.NewSigner(t)
	p := records.Policy{Key: owner.Key, Trust: stored.Trust(t, owner.Public).Trust}
	main, offsite := mem.New(), mem.New()
	segments := stored.Keyed(stored.NewWriter(t, "c", stored.LineageID(1)), owner.Key).Some(6)
	for _, b := range []storage.Bucket{main, offsite} {
		for n := range 3 {
			stored.Create(t, stored.OpenWith(t, b, p), stored.IDAt(n))
		}
		stored.StoreSegments(t, stored.OpenWith(t, b, p), segments...)
	}
	prune := func(b storage.Bucket, n int) {
		t.Helper()
		err := stored.OpenWith(t, b, p).Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(n), Time: stored.Noon})
		if err != nil {
			t.Fatal(err)
		}
	}
	prune(main, 0)
	prune(main, 1)
	prune(offsite, 2) // makes a marker
	err := stored.OpenWith(t, main, p).Log().Delete(t.Context(), log.Tombstone{Lineage: stored.LineageID(1), Upto: 5, Time: stored.Noon})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range stored.Keys(t, main) {
		if strings.Contains(key, "/tombstone-") {
			stored.Put(t, offsite, key, stored.Get(t, main, key))
		}
	}
	c := stored.OpenWith(t, offsite, p)
	after := stored.Load(t, c, backups.LoadOptions{Log: true})
	stored.WantIDs(t, after, []catalog.ID{stored.IDAt(1), stored.IDAt(0)}, nil)
	stored.WantLineage(t, "the log", after.Lineages[0], "1-6", "0 damaged")
	if len(after.Ignored) != 2 {
		t.Errorf("ignored %+v, want the two tombstones", after.Ignored)
	}
	swept, err := c.Sweep(t.Context(), time.Hour, time.Now().Add(48*time.Hour))
	for _, l := range swept {
		if !strings.HasPrefix(l.Key, stored.Folder("c", stored.IDAt(2))) {
			t.Errorf("%s is removed", l.Key)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// A pin that holds keeps a backup in spite of its tombstones.
func TestPinBeatsATombstone(t *testing.T) {
	b := mem.New()
	c := stored.OpenWith(t, b, records.Policy{Lock: records.Lock{For: time.Hour}}) // keeps the manifest
	stored.Create(t, c, stored.IDAt(0))
	stored.WantError(t, "Delete", c.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(0), Time: stored.Noon}), storage.ErrLocked)
	stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), nil, nil)
	stored.Put(t, b, stored.Folder("c", stored.IDAt(0))+"pin-0123456789abcdef.json", encodedPin(t, stored.IDAt(0)))
	stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), []catalog.ID{stored.IDAt(0)}, nil)
	left, err := c.Leftovers(t.Context())
	if err != nil || len(left) > 0 {
		t.Errorf("leftovers %+v, %v", left, err)
	}
}

// A suspension that has ended stays ended, even if an attacker stores it again.
func TestSuspensionIsNotReplayed(t *testing.T) {
	owner := stored.NewSigner(t)
	b := mem.New()
	c := stored.OpenWith(t, b, records.Policy{Key: owner.Key, Trust: stored.Trust(t, owner.Public).Trust})
	stored.Suspend(t, c, stored.Suspension(true, 0))
	first := stored.Get(t, b, "c/suspension.json")
	stored.Suspend(t, c, stored.Suspension(true, 1))
	second := stored.Get(t, b, "c/suspension.json")
	stored.Suspend(t, c, stored.Suspension(false, 2))
	for _, old := range [][]byte{first, second} {
		stored.Put(t, b, "c/suspension.json", old)
		s, err := c.Services().Read(t.Context())
		if s.Suspended || err != nil {
			t.Errorf("an old suspension suspends again: %+v, %v", s, err)
		}
	}
	s := stored.Suspend(t, c, stored.Suspension(true, 3))
	if !s.Suspended {
		t.Errorf("%+v", s)
	}
	s, err := c.Services().Read(t.Context())
	if !s.Suspended || err != nil {
		t.Errorf("a new suspension: %+v, %v", s, err)
	}
}

// Two prunes delete a backup that a third process pins. If Pin succeeds, the pin holds.
func TestPinAndTwoPrunes(t *testing.T) {
	b := mem.New()
	plain := stored.OpenCluster(t, b, "c")
	stored.Create(t, plain, stored.IDAt(0))
	gone := catalog.Tombstone{Backup: stored.IDAt(0), Time: stored.Noon}
	manifest := stored.Folder("c", stored.IDAt(0)) + "manifest.json"
	var pinned error
	second := stored.OpenWith(t, gated{b, func(v storagetest.Verb, key string) error {
		if v != storagetest.VerbDelete || key != manifest {
			return nil
		}
		// The second prune has made both checks and is about to remove the manifest. The first prune still sees the pin.
		_, pinned = plain.Pin(t.Context(), catalog.Pin{Backup: stored.IDAt(0), Time: stored.Noon})
		_ = plain.Delete(t.Context(), gone)
		return nil
	}}, records.Policy{})
	_ = second.Delete(t.Context(), gone)
	cat := stored.Load(t, plain, backups.LoadOptions{})
	if pinned == nil && len(cat.Backups) == 0 {
		t.Error("the pin was acknowledged, and the backup is gone")
	}
	_, err := plain.Pin(t.Context(), catalog.Pin{Backup: stored.IDAt(0), Time: stored.Noon})
	if err == nil && len(cat.Backups) == 0 {
		t.Error("what is gone can be pinned")
	}
}

// A backup that was stopped for longer than the grace does not report that it is stored.
func TestCreateNoticesRemovedData(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	_, err := stored.CreateFrom(t.Context(), c, stored.IDAt(0), seal.Recipients{}.Seal(), stored.Sealed(t, stored.Content, seal.Recipients{}), func() (catalog.Manifest, error) {
		swept, err := stored.OpenCluster(t, b, "c").Sweep(t.Context(), time.Hour, time.Now().Add(48*time.Hour)) // a prune at the same time
		if err != nil || len(swept) != 1 {
			t.Errorf("swept %+v, %v", swept, err)
		}
		return stored.ManifestOf(stored.Content, stored.Noon), nil
	})
	stored.WantError(t, "Create", err, catalog.ErrNotFound)
	stored.WantNothing(t, "a backup that lost its data", b)
}

// A deletion at the source deletes at the target only with Options.Deletions, and by a tombstone of the target.
func TestCopyDeletions(t *testing.T) {
	source, target := mem.New(), mem.New()
	from, to := stored.OpenCluster(t, source, "c"), stored.OpenCluster(t, target, "c")
	for n := range 3 {
		stored.Create(t, from, stored.IDAt(n))
	}
	stored.MustCopy(t, from, to, copying.Options{})
	pin(t, to, stored.IDAt(1), "stays")
	for n := range 2 {
		err := from.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(n), Time: stored.Noon})
		if err != nil {
			t.Fatal(err)
		}
	}
	stored.MustCopy(t, from, to, copying.Options{})
	stored.WantIDs(t, stored.Load(t, to, backups.LoadOptions{}), []catalog.ID{stored.IDAt(2), stored.IDAt(1), stored.IDAt(0)}, nil)
	result := stored.MustCopy(t, from, to, copying.Options{Deletions: true, By: "test"})
	stored.WantIDs(t, stored.Load(t, to, backups.LoadOptions{}), []catalog.ID{stored.IDAt(2), stored.IDAt(1)}, nil)
	if result.Deleted != 1 || len(result.Faults) > 0 {
		t.Errorf("%+v", result)
	}
}

// Backups and segments that are pruned while they are copied, at the source or at the target, are left out without a fault.
func TestCopyWhilePruned(t *testing.T) {
	for _, prunedAtSource := range []bool{true, false} {
		source, target := mem.New(), mem.New()
		from, to := stored.OpenCluster(t, source, "c"), stored.OpenCluster(t, target, "c")
		stored.Create(t, from, stored.IDAt(0))
		stored.Create(t, from, stored.IDAt(1))
		pruned := from
		if !prunedAtSource {
			stored.MustCopy(t, from, to, copying.Options{})
			pruned = to
		}
		stored.StoreSegments(t, from, stored.NewWriter(t, "c", stored.LineageID(1)).Some(2)...)
		racing := stored.OpenWith(t, gated{source, func(v storagetest.Verb, key string) error {
			if v == storagetest.VerbOpen && strings.HasPrefix(key, stored.Folder("c", stored.IDAt(0))) && strings.HasSuffix(key, "manifest.json") {
				_ = pruned.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(0), Time: stored.Noon})
			}
			return nil
		}}, records.Policy{})
		result, err := copying.Copy(t.Context(), racing, to, copying.Options{})
		if err != nil || len(result.Faults) > 0 {
			t.Errorf("pruned at the source %v: %+v, %v", prunedAtSource, result, err)
		}
		if result.Segments != 2 {
			t.Errorf("pruned at the source %v: %d segments were copied", prunedAtSource, result.Segments)
		}
	}
}

// The first write makes the marker, so that its process notices when the repository disappears, as when a file system is
// unmounted and leaves an empty directory. Other writers make no second marker.
func TestMarkerComesWithTheFirstWrite(t *testing.T) {
	for name, store := range map[string]func(*repository.Cluster){
		"a backup": func(c *repository.Cluster) { stored.Create(t, c, stored.IDAt(0)) },
		"a segment": func(c *repository.Cluster) {
			stored.StoreSegments(t, c, stored.NewWriter(t, "c", stored.LineageID(1)).Some(1)...)
		},
	} {
		b := mem.New()
		c := stored.OpenCluster(t, b, "c")
		store(c)
		first := stored.Get(t, b, "c/repository.json")
		stored.Create(t, stored.OpenCluster(t, b, "c"), stored.IDAt(1))
		if !bytes.Equal(stored.Get(t, b, "c/repository.json"), first) {
			t.Errorf("%s: another process made another marker", name)
		}
		for _, key := range stored.Keys(t, b) {
			stored.Remove(t, b, key)
		}
		_, err := stored.CreateFrom(t.Context(), c, stored.IDAt(2), seal.Recipients{}.Seal(), strings.NewReader("sealed"), nil)
		stored.WantError(t, name+", then another", err, records.ErrNoMarker)
	}
}

// Two processes that write first at the same time make one marker, and both know it.
func TestTwoFirstWriters(t *testing.T) {
	b := mem.New()
	one := stored.OpenWith(t, gated{b, func(v storagetest.Verb, key string) error {
		if v == storagetest.VerbPut && key == "c/repository.json" {
			stored.Create(t, stored.OpenCluster(t, b, "c"), stored.IDAt(1))
		}
		return nil
	}}, records.Policy{})
	stored.Create(t, one, stored.IDAt(0))
	stored.Remove(t, b, "c/repository.json")
	_, err := stored.CreateFrom(t.Context(), one, stored.IDAt(2), seal.Recipients{}.Seal(), strings.NewReader("sealed"), nil)
	stored.WantError(t, "the one that was second, when the marker is gone", err, records.ErrNoMarker)
}

// An attacker can store junk as the marker. Backups succeed all the same.
func TestJunkForAMarker(t *testing.T) {
	b := mem.New()
	stored.Put(t, b, "c/repository.json", []byte("junk"))
	c := stored.OpenCluster(t, b, "c")
	stored.Create(t, c, stored.IDAt(0))
	stored.Create(t, c, stored.IDAt(1))
	stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), []catalog.ID{stored.IDAt(1), stored.IDAt(0)}, nil)
}

// An agent that may write only segments stores them all the same, and does not try to make the marker with each.
func TestMarkerThatMayNotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		c := stored.OpenWith(t, gated{mem.New(), func(v storagetest.Verb, key string) error {
			if v == storagetest.VerbPut && key == "c/repository.json" {
				tries++
				return storage.ErrDenied
			}
			return nil
		}}, records.Policy{})
		for _, segment := range stored.NewWriter(t, "c", stored.LineageID(1)).Some(30) {
			stored.StoreSegments(t, c, segment)
			time.Sleep(time.Minute)
		}
		if tries != 3 {
			t.Errorf("%d tries in half an hour", tries)
		}
	})
}
