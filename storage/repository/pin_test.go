package repository_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

func pin(tb testing.TB, c *repository.Cluster, id catalog.ID, reason string) catalog.Pin {
	tb.Helper()
	p, err := c.Pin(tb.Context(), catalog.Pin{Backup: id, Reason: reason, Time: stored.Noon, By: "test"})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func unpin(tb testing.TB, c *repository.Cluster, id catalog.ID) int {
	tb.Helper()
	lifted, err := c.Unpin(tb.Context(), catalog.Unpin{Backup: id, Time: stored.Noon, By: "test"})
	if err != nil {
		tb.Fatal(err)
	}
	return len(lifted)
}

// pinsOf returns the reasons of the pins of the only backup.
func pinsOf(tb testing.TB, c *repository.Cluster) (reasons []string) {
	tb.Helper()
	for _, p := range stored.Load(tb, c, backups.LoadOptions{Proofs: true}).Backups[0].Pins {
		reasons = append(reasons, p.Reason)
	}
	return reasons
}

// A program lifts its own pins, and leaves those of others.
func TestUnpinOwn(t *testing.T) {
	c := stored.OpenCluster(t, mem.New(), "c")
	stored.Create(t, c, stored.IDAt(0))
	pin(t, c, stored.IDAt(0), "a person's")
	_, err := c.Pin(t.Context(), catalog.Pin{Backup: stored.IDAt(0), Reason: "a restore's", Time: stored.Noon, By: "restore 1"})
	if err != nil {
		t.Fatal(err)
	}
	lifted, err := c.UnpinOwn(t.Context(), catalog.Unpin{Backup: stored.IDAt(0), Time: stored.Noon, By: "restore 1"}, "restore 1")
	if err != nil || len(lifted) != 1 || !slices.Equal(pinsOf(t, c), []string{"a person's"}) {
		t.Errorf("lifted %+v, %v; left %q", lifted, err, pinsOf(t, c))
	}
}

// TestPin checks that a pinned backup is not deleted until all its pins are lifted, also if its objects are locked.
func TestPin(t *testing.T) {
	for name, policy := range map[string]records.Policy{"open": {}, "locked": {Lock: records.Lock{For: time.Hour}}} {
		t.Run(name, func(t *testing.T) {
			b := mem.New()
			stored.Create(t, stored.OpenCluster(t, b, "c"), stored.IDAt(0))
			c := stored.OpenWith(t, b, policy)
			first := pin(t, c, stored.IDAt(0), "before 1.34")
			pin(t, c, stored.IDAt(0), "")
			got := pinsOf(t, c)
			if !slices.Equal(got, []string{"before 1.34", ""}) && !slices.Equal(got, []string{"", "before 1.34"}) {
				t.Errorf("pins %q", got)
			}
			want := stored.Folder("c", stored.IDAt(0)) + "pin-" + first.ID + ".json"
			if !slices.Contains(stored.Keys(t, b), want) {
				t.Errorf("%s is not in %q", want, stored.Keys(t, b))
			}
			gone := catalog.Tombstone{Backup: stored.IDAt(0), Time: stored.Noon}
			stored.WantError(t, "Delete", c.Delete(t.Context(), gone), repository.ErrPinned)
			if hasTombstone(t, b) {
				t.Error("a pinned backup has a tombstone")
			}
			result, err := c.Prune(t.Context(), repository.Removal{Backups: []catalog.Tombstone{gone}}, pruneOptions(0), nil)
			if err != nil || !slices.Equal(result.Pinned, []catalog.ID{stored.IDAt(0)}) || len(result.Deleted) > 0 {
				t.Errorf("%+v, %v", result, err)
			}
			n := unpin(t, c, stored.IDAt(0))
			if n != 2 || len(pinsOf(t, c)) > 0 {
				t.Errorf("%d pins are lifted, %q are left", n, pinsOf(t, c))
			}
			n = unpin(t, c, stored.IDAt(0))
			if n != 0 {
				t.Errorf("%d pins are lifted twice", n)
			}
			pin(t, c, stored.IDAt(0), "again")
			got = pinsOf(t, c)
			if !slices.Equal(got, []string{"again"}) {
				t.Errorf("pins %q", got)
			}
			unpin(t, c, stored.IDAt(0))
			err = c.Delete(t.Context(), gone)
			if err != nil {
				t.Fatal(err)
			}
			stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), nil, nil)
		})
	}
}

func TestPinNothing(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	stored.Create(t, c, stored.IDAt(0))
	_, err := c.Pin(t.Context(), catalog.Pin{Backup: stored.IDAt(1)})
	stored.WantError(t, "Pin of nothing", err, catalog.ErrNotFound)
	_, err = c.Unpin(t.Context(), catalog.Unpin{Backup: stored.IDAt(1)})
	stored.WantError(t, "Unpin of nothing", err, catalog.ErrNotFound)
	b2 := mem.New()
	locked := stored.OpenWith(t, b2, records.Policy{Lock: records.Lock{For: time.Hour}})
	stored.Create(t, locked, stored.IDAt(0))
	stored.WantError(t, "Delete", locked.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(0)}), storage.ErrLocked)
	_, err = locked.Pin(t.Context(), catalog.Pin{Backup: stored.IDAt(0)})
	stored.WantError(t, "Pin of what is deleted", err, catalog.ErrNotFound)
}

// TestPinRace checks that of a Pin and a Delete at the same time at least one fails, so that no pinned backup is deleted
// silently.
func TestPinRace(t *testing.T) {
	gone := catalog.Tombstone{Backup: stored.IDAt(0), Time: stored.Noon}
	b := mem.New()
	other := stored.OpenCluster(t, b, "c")
	stored.Create(t, other, stored.IDAt(0))
	between := &onPut{Bucket: b, text: "/tombstone-", do: func() {
		_, err := other.Pin(t.Context(), catalog.Pin{Backup: stored.IDAt(0)})
		stored.WantError(t, "Pin beside a tombstone", err, catalog.ErrNotFound)
	}}
	err := stored.OpenCluster(t, between, "c").Delete(t.Context(), gone)
	if err != nil {
		t.Fatal(err)
	}

	b = mem.New()
	other = stored.OpenCluster(t, b, "c")
	stored.Create(t, other, stored.IDAt(0))
	between = &onPut{Bucket: b, text: "/tombstone-", do: func() { // by a process that has found no tombstone before
		stored.Put(t, b, stored.Folder("c", stored.IDAt(0))+"pin-0123456789abcdef.json", encodedPin(t, stored.IDAt(0)))
	}}
	stored.WantError(t, "Delete beside a pin", stored.OpenCluster(t, between, "c").Delete(t.Context(), gone), repository.ErrPinned)
	stored.WantIDs(t, stored.Load(t, other, backups.LoadOptions{}), []catalog.ID{stored.IDAt(0)}, nil)
	if hasTombstone(t, b) {
		t.Error("the tombstone of a pinned backup stays")
	}
}

func hasTombstone(tb testing.TB, b storage.Bucket) bool {
	tb.Helper()
	return slices.ContainsFunc(stored.Keys(tb, b), func(key string) bool { return strings.Contains(key, "/tombstone-") })
}

func encodedPin(tb testing.TB, id catalog.ID) []byte {
	tb.Helper()
	p, err := catalog.Pins.Encode(catalog.Pin{Format: catalog.Pins.Format, Backup: id, ID: "0123456789abcdef", Time: stored.Noon})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// TestForgedPins checks that a reader that trusts keys ignores pins and unpins of others, and names each of them.
func TestForgedPins(t *testing.T) {
	b, owner := mem.New(), stored.NewSigner(t)
	policy := stored.Trust(t, owner.Public)
	policy.Key = owner.Key
	c, forger := stored.OpenWith(t, b, policy), stored.OpenForger(t, b)
	stored.Create(t, c, stored.IDAt(0))
	pin(t, forger, stored.IDAt(0), "forged")
	got := pinsOf(t, c)
	if len(got) > 0 {
		t.Errorf("pins %q", got)
	}
	mine := pin(t, c, stored.IDAt(0), "mine")
	n := unpin(t, forger, stored.IDAt(0))
	if n != 2 {
		t.Errorf("%d pins", n)
	}
	got = pinsOf(t, c)
	if !slices.Equal(got, []string{"mine"}) {
		t.Errorf("pins %q", got)
	}
	ignored := stored.Load(t, c, backups.LoadOptions{Proofs: true}).Ignored
	if len(ignored) != 2 {
		t.Errorf("ignored %+v", ignored)
	}
	for _, d := range ignored {
		if d.ID != stored.IDAt(0) || !errors.Is(d.Err, catalog.ErrDamaged) || !strings.Contains(d.Err.Error(), "pin-") {
			t.Errorf("ignored %+v", d)
		}
	}
	_, err := c.Unpin(t.Context(), catalog.Unpin{Backup: stored.IDAt(0)}) // the forged unpin has the same name
	stored.WantError(t, "Unpin", err, storage.ErrExist)
	unpinKey := stored.Folder("c", stored.IDAt(0)) + "unpin-" + mine.ID + ".json"
	stored.Put(t, b, unpinKey, stored.Get(t, b, stored.Folder("c", stored.IDAt(0))+"pin-"+mine.ID+".json"))
	got = pinsOf(t, c)
	if !slices.Equal(got, []string{"mine"}) {
		t.Errorf("a pin under the name of what lifts it leaves %q", got)
	}
	stored.Remove(t, b, unpinKey)
	n = unpin(t, c, stored.IDAt(0))
	if n != 1 || len(pinsOf(t, c)) > 0 {
		t.Errorf("%d pins are lifted, %q are left", n, pinsOf(t, c))
	}
}

// TestPinDamaged checks that a damaged pin holds if no key is trusted, and is lifted as any other.
func TestPinDamaged(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	stored.Create(t, c, stored.IDAt(0))
	p := pin(t, c, stored.IDAt(0), "mine")
	stored.Change(t, b, stored.Folder("c", stored.IDAt(0))+"pin-"+p.ID+".json", stored.Flip(20, 1))
	stored.WantError(t, "Delete", c.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(0)}), repository.ErrPinned)
	n := unpin(t, c, stored.IDAt(0))
	if n != 1 || len(pinsOf(t, c)) > 0 {
		t.Errorf("%d pins are lifted, %q are left", n, pinsOf(t, c))
	}
	stored.Put(t, b, stored.Folder("c", stored.IDAt(0))+"pin-of-a-stranger.json", stored.Content)
	got := pinsOf(t, c)
	if len(got) > 0 {
		t.Errorf("pins %q", got)
	}
}

// A pin with an end keeps the backup until then. A tombstone that it overruled counts from then on.
func TestPinEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stored.OpenCluster(t, mem.New(), "c")
		for n := range 2 {
			stored.Create(t, c, stored.IDAt(n))
			_, err := c.Pin(t.Context(), catalog.Pin{Backup: stored.IDAt(n), Time: time.Now(), Until: time.Now().Add(90 * 24 * time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
		}
		pin(t, c, stored.IDAt(1), "for ever")
		time.Sleep(90*24*time.Hour - time.Second)
		stored.WantError(t, "Delete before the end", c.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(0), Time: stored.Noon}), repository.ErrPinned)
		time.Sleep(time.Second)
		pins := stored.Load(t, c, backups.LoadOptions{Proofs: true}).Backups[1].Pins
		if len(pins) > 0 {
			t.Errorf("pins that have ended: %+v", pins)
		}
		err := c.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(0), Time: stored.Noon})
		if err != nil {
			t.Errorf("Delete at the end: %v", err)
		}
		stored.WantError(t, "Delete with another pin", c.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(1), Time: stored.Noon}), repository.ErrPinned)
	})
}
