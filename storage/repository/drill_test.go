package repository_test

import (
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

// drillOf is what a drill found n hours past noon.
func drillOf(id catalog.ID, v catalog.Verdict, n int) catalog.Proof {
	p := proofOf(id, catalog.Booted, v, n)
	p.Drill = &catalog.Drill{Target: "the newest backup"}
	return p
}

// wantLastDrill fails unless the last one was n hours past noon; below zero: there is none.
func wantLastDrill(tb testing.TB, what string, c *repository.Cluster, n int) {
	tb.Helper()
	p, ok, err := c.LastDrill(tb.Context(), noon.Add(100*time.Hour))
	if err != nil || ok != (n >= 0) || ok && (p.Drill == nil || !p.Time.Equal(noon.Add(time.Duration(n)*time.Hour))) {
		tb.Errorf("%s: %+v, %v, %v; want one of %d h", what, p, ok, err, n)
	}
}

// TestLastDrill: of all backups, however it went; a verify is none.
func TestLastDrill(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c := openCluster(t, b, "c")
		wantLastDrill(t, "of no backup", c, -1)
		create(t, c, idAt(0))
		create(t, c, idAt(1))
		appendProof(t, c, proofOf(idAt(0), catalog.Booted, catalog.Passed, 1))
		wantLastDrill(t, "verified alone", c, -1)
		for n, v := range []catalog.Verdict{catalog.Passed, catalog.Failed, catalog.NotRun, catalog.Passed} {
			appendProof(t, c, drillOf(idAt(1-n%2), v, 2+n))
			wantLastDrill(t, "with a later one", c, 2+n)
		}
		appendProof(t, c, drillOf(idAt(1), catalog.Passed, 3))
		appendProof(t, c, proofOf(idAt(1), catalog.Hashed, catalog.Passed, 9))
		wantLastDrill(t, "with an older one and a verify", c, 5)
		if err := c.Delete(t.Context(), repository.Tombstone{Backup: idAt(0), Reason: "test", Time: noon, By: "test"}); err != nil {
			t.Fatal(err)
		}
		wantLastDrill(t, "of a backup that is deleted", c, 5)
	})
}

// TestLastDrillBelievesWhatIsInside: names are anybody's; and one from the future would keep all others from being run.
func TestLastDrillBelievesWhatIsInside(t *testing.T) {
	b := mem.New()
	owner := newSigner(t)
	policy := trust(t, owner.public)
	policy.Key = owner.key
	c := openWith(t, b, policy)
	create(t, c, idAt(0))
	appendProof(t, c, drillOf(idAt(0), catalog.Passed, 1))
	appendProof(t, c, drillOf(idAt(0), catalog.Passed, 2))
	name := func(stamp string) string { return folder("c", idAt(0)) + "proof-" + stamp + ".json" }
	old := read(t, b, name(noon.Add(time.Hour).Format("20060102T150405.000Z")))
	write(t, b, name("20261123T000000.000Z"), old)
	write(t, b, name("20261123T000001.000Z"), noise(100))
	write(t, b, name("20261123T000002.000Z"), nil)
	write(t, b, name("tomorrow"), old)
	appendProof(t, openForger(t, b), drillOf(idAt(0), catalog.Passed, 5)) // by somebody without a key
	wantLastDrill(t, "among junk", c, 2)
	appendProof(t, c, drillOf(idAt(0), catalog.Passed, 101))
	wantLastDrill(t, "with one from the future", c, 2)
}

// TestLastDrillIsCheap: one listing, and a read for what is newer.
func TestLastDrillIsCheap(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := openCluster(t, b, "c")
	for n := range 50 {
		create(t, c, idAt(n))
		appendProof(t, c, drillOf(idAt(n), catalog.Passed, n))
	}
	lists, reads := b.Calls(storage.VerbList), b.Calls(storage.VerbOpen)
	wantLastDrill(t, "of fifty", c, 49)
	if lists, reads = b.Calls(storage.VerbList)-lists, b.Calls(storage.VerbOpen)-reads; lists != 1 || reads != 1 {
		t.Errorf("%d listings, %d reads", lists, reads)
	}
	for _, verb := range []storage.Verb{storage.VerbList, storage.VerbOpen} {
		b.On(verb).Fail(errTest)
		_, _, err := c.LastDrill(t.Context(), noon.Add(time.Hour*100))
		wantError(t, "the store is away", err, errTest)
	}
}
