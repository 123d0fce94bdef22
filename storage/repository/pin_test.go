package repository_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

func pin(tb testing.TB, c *repository.Cluster, id catalog.ID, reason string) catalog.Pin {
	tb.Helper()
	p, err := c.Pin(tb.Context(), catalog.Pin{Backup: id, Reason: reason, Time: noon, By: "test"})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func unpin(tb testing.TB, c *repository.Cluster, id catalog.ID) int {
	tb.Helper()
	lifted, err := c.Unpin(tb.Context(), catalog.Unpin{Backup: id, Time: noon, By: "test"})
	if err != nil {
		tb.Fatal(err)
	}
	return len(lifted)
}

// pinsOf are the reasons of the pins of the only backup.
func pinsOf(tb testing.TB, c *repository.Cluster) (reasons []string) {
	tb.Helper()
	for _, p := range load(tb, c, repository.LoadOptions{Proofs: true}).Backups[0].Pins {
		reasons = append(reasons, p.Reason)
	}
	return reasons
}

// TestPin: a pinned backup is not deleted until all its pins are lifted, where objects are locked too.
func TestPin(t *testing.T) {
	for name, policy := range map[string]repository.Policy{"open": {}, "locked": {Lock: repository.Lock{For: time.Hour}}} {
		t.Run(name, func(t *testing.T) {
			b := mem.New()
			create(t, openCluster(t, b, "c"), idAt(0))
			c := openWith(t, b, policy)
			first := pin(t, c, idAt(0), "before 1.34")
			pin(t, c, idAt(0), "")
			if got := pinsOf(t, c); !slices.Equal(got, []string{"before 1.34", ""}) && !slices.Equal(got, []string{"", "before 1.34"}) {
				t.Errorf("pins %q", got)
			}
			if want := folder("c", idAt(0)) + "pin-" + first.ID + ".json"; !slices.Contains(keys(t, b), want) {
				t.Errorf("%s is not in %q", want, keys(t, b))
			}
			gone := repository.Tombstone{Backup: idAt(0), Time: noon}
			wantError(t, "Delete", c.Delete(t.Context(), gone), repository.ErrPinned)
			if hasTombstone(t, b) {
				t.Error("a pinned backup has a tombstone")
			}
			result, err := c.Prune(t.Context(), repository.Removal{Backups: []repository.Tombstone{gone}}, pruneOptions(0), nil)
			if err != nil || !slices.Equal(result.Pinned, []catalog.ID{idAt(0)}) || len(result.Deleted) > 0 {
				t.Errorf("%+v, %v", result, err)
			}
			if n := unpin(t, c, idAt(0)); n != 2 || len(pinsOf(t, c)) > 0 {
				t.Errorf("%d pins are lifted, %q are left", n, pinsOf(t, c))
			}
			if n := unpin(t, c, idAt(0)); n != 0 {
				t.Errorf("%d pins are lifted twice", n)
			}
			pin(t, c, idAt(0), "again")
			if got := pinsOf(t, c); !slices.Equal(got, []string{"again"}) {
				t.Errorf("pins %q", got)
			}
			unpin(t, c, idAt(0))
			if err := c.Delete(t.Context(), gone); err != nil {
				t.Fatal(err)
			}
			wantIDs(t, load(t, c, repository.LoadOptions{}), nil, nil)
		})
	}
}

func TestPinNothing(t *testing.T) {
	b := mem.New()
	c := openCluster(t, b, "c")
	create(t, c, idAt(0))
	_, err := c.Pin(t.Context(), catalog.Pin{Backup: idAt(1)})
	wantError(t, "Pin of nothing", err, catalog.ErrNotFound)
	_, err = c.Unpin(t.Context(), catalog.Unpin{Backup: idAt(1)})
	wantError(t, "Unpin of nothing", err, catalog.ErrNotFound)
	b2 := mem.New()
	locked := openWith(t, b2, repository.Policy{Lock: repository.Lock{For: time.Hour}})
	create(t, locked, idAt(0))
	wantError(t, "Delete", locked.Delete(t.Context(), repository.Tombstone{Backup: idAt(0)}), storage.ErrLocked)
	_, err = locked.Pin(t.Context(), catalog.Pin{Backup: idAt(0)})
	wantError(t, "Pin of what is deleted", err, catalog.ErrNotFound)
}

// TestPinRace: of one who pins and one who deletes at the same time at least one sees the other, and then nothing is lost
// without a word.
func TestPinRace(t *testing.T) {
	gone := repository.Tombstone{Backup: idAt(0), Time: noon}
	b := mem.New()
	other := openCluster(t, b, "c")
	create(t, other, idAt(0))
	between := &onPut{Bucket: b, text: "/tombstone-", do: func() {
		_, err := other.Pin(t.Context(), catalog.Pin{Backup: idAt(0)})
		wantError(t, "Pin beside a tombstone", err, catalog.ErrNotFound)
	}}
	if err := openCluster(t, between, "c").Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}

	b = mem.New()
	other = openCluster(t, b, "c")
	create(t, other, idAt(0))
	between = &onPut{Bucket: b, text: "/tombstone-", do: func() { // by one who has looked for a tombstone before
		put(t, b, folder("c", idAt(0))+"pin-0123456789abcdef.json", encodedPin(t, idAt(0)))
	}}
	wantError(t, "Delete beside a pin", openCluster(t, between, "c").Delete(t.Context(), gone), repository.ErrPinned)
	wantIDs(t, load(t, other, repository.LoadOptions{}), []catalog.ID{idAt(0)}, nil)
	if hasTombstone(t, b) {
		t.Error("the tombstone of a pinned backup stays")
	}
}

func hasTombstone(tb testing.TB, b storage.Bucket) bool {
	tb.Helper()
	return slices.ContainsFunc(keys(tb, b), func(key string) bool { return strings.Contains(key, "/tombstone-") })
}

func encodedPin(tb testing.TB, id catalog.ID) []byte {
	tb.Helper()
	p, err := catalog.Pins.Encode(catalog.Pin{Format: catalog.Pins.Format, Backup: id, ID: "0123456789abcdef", Time: noon})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// TestForgedPins: who trusts keys counts no pin of anybody else, and nobody else lifts one; each is named.
func TestForgedPins(t *testing.T) {
	b, owner := mem.New(), newSigner(t)
	policy := trust(t, owner.public)
	policy.Key = owner.key
	c, forger := openWith(t, b, policy), openForger(t, b)
	create(t, c, idAt(0))
	pin(t, forger, idAt(0), "forged")
	if got := pinsOf(t, c); len(got) > 0 {
		t.Errorf("pins %q", got)
	}
	mine := pin(t, c, idAt(0), "mine")
	if n := unpin(t, forger, idAt(0)); n != 2 {
		t.Errorf("%d pins", n)
	}
	if got := pinsOf(t, c); !slices.Equal(got, []string{"mine"}) {
		t.Errorf("pins %q", got)
	}
	ignored := load(t, c, repository.LoadOptions{Proofs: true}).Ignored
	if len(ignored) != 2 {
		t.Errorf("ignored %+v", ignored)
	}
	for _, d := range ignored {
		if d.ID != idAt(0) || !errors.Is(d.Err, catalog.ErrDamaged) || !strings.Contains(d.Err.Error(), "pin-") {
			t.Errorf("ignored %+v", d)
		}
	}
	_, err := c.Unpin(t.Context(), catalog.Unpin{Backup: idAt(0)}) // the forged one is in its way
	wantError(t, "Unpin", err, storage.ErrExist)
	unpinKey := folder("c", idAt(0)) + "unpin-" + mine.ID + ".json"
	write(t, b, unpinKey, read(t, b, folder("c", idAt(0))+"pin-"+mine.ID+".json"))
	if got := pinsOf(t, c); !slices.Equal(got, []string{"mine"}) {
		t.Errorf("a pin under the name of what lifts it leaves %q", got)
	}
	remove(t, b, unpinKey)
	if n := unpin(t, c, idAt(0)); n != 1 || len(pinsOf(t, c)) > 0 {
		t.Errorf("%d pins are lifted, %q are left", n, pinsOf(t, c))
	}
}

// TestPinDamaged: it holds where nobody asks for signatures, and is lifted as any other.
func TestPinDamaged(t *testing.T) {
	b := mem.New()
	c := openCluster(t, b, "c")
	create(t, c, idAt(0))
	p := pin(t, c, idAt(0), "mine")
	change(t, b, folder("c", idAt(0))+"pin-"+p.ID+".json", flip(20, 1))
	wantError(t, "Delete", c.Delete(t.Context(), repository.Tombstone{Backup: idAt(0)}), repository.ErrPinned)
	if n := unpin(t, c, idAt(0)); n != 1 || len(pinsOf(t, c)) > 0 {
		t.Errorf("%d pins are lifted, %q are left", n, pinsOf(t, c))
	}
	put(t, b, folder("c", idAt(0))+"pin-of-a-stranger.json", content)
	if got := pinsOf(t, c); len(got) > 0 {
		t.Errorf("pins %q", got)
	}
}

// A pin with an end keeps the backup until then, and no longer; a tombstone that it has beaten counts from then on.
func TestPinEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t, mem.New(), "c")
		for n := range 2 {
			create(t, c, idAt(n))
			_, err := c.Pin(t.Context(), catalog.Pin{Backup: idAt(n), Time: time.Now(), Until: time.Now().Add(90 * 24 * time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
		}
		pin(t, c, idAt(1), "for ever")
		time.Sleep(90*24*time.Hour - time.Second)
		wantError(t, "Delete before the end", c.Delete(t.Context(), repository.Tombstone{Backup: idAt(0), Time: noon}), repository.ErrPinned)
		time.Sleep(time.Second)
		if pins := load(t, c, repository.LoadOptions{Proofs: true}).Backups[1].Pins; len(pins) > 0 {
			t.Errorf("pins that have ended: %+v", pins)
		}
		if err := c.Delete(t.Context(), repository.Tombstone{Backup: idAt(0), Time: noon}); err != nil {
			t.Errorf("Delete at the end: %v", err)
		}
		wantError(t, "Delete with another pin", c.Delete(t.Context(), repository.Tombstone{Backup: idAt(1), Time: noon}), repository.ErrPinned)
	})
}
