package repository_test

import (
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// drillOf returns the proof of a drill n hours after noon.
func drillOf(id catalog.ID, v catalog.Verdict, n int) catalog.Proof {
	p := stored.ProofOf(id, catalog.Booted, v, n)
	p.Drill = &catalog.Drill{Target: "the newest backup"}
	return p
}

// wantLastDrill fails unless the last drill was n hours after noon, or there is none if n is negative.
func wantLastDrill(tb testing.TB, what string, c *repository.Cluster, n int) {
	tb.Helper()
	p, ok, err := c.LastDrill(tb.Context(), stored.Noon.Add(100*time.Hour))
	if err != nil || ok != (n >= 0) || ok && (p.Drill == nil || !p.Time.Equal(stored.Noon.Add(time.Duration(n)*time.Hour))) {
		tb.Errorf("%s: %+v, %v, %v; want one of %d h", what, p, ok, err, n)
	}
}

// TestLastDrill checks that LastDrill covers all backups and all verdicts, and ignores the proofs of a verify.
func TestLastDrill(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		wantLastDrill(t, "of no backup", c, -1)
		stored.Create(t, c, stored.IDAt(0))
		stored.Create(t, c, stored.IDAt(1))
		stored.AppendProof(t, c, stored.ProofOf(stored.IDAt(0), catalog.Booted, catalog.Passed, 1))
		wantLastDrill(t, "verified alone", c, -1)
		for n, v := range []catalog.Verdict{catalog.Passed, catalog.Failed, catalog.NotRun, catalog.Passed} {
			stored.AppendProof(t, c, drillOf(stored.IDAt(1-n%2), v, 2+n))
			wantLastDrill(t, "with a later one", c, 2+n)
		}
		stored.AppendProof(t, c, drillOf(stored.IDAt(1), catalog.Passed, 3))
		stored.AppendProof(t, c, stored.ProofOf(stored.IDAt(1), catalog.Hashed, catalog.Passed, 9))
		wantLastDrill(t, "with an older one and a verify", c, 5)
		err := c.Delete(t.Context(), catalog.Tombstone{Backup: stored.IDAt(0), Reason: "test", Time: stored.Noon, By: "test"})
		if err != nil {
			t.Fatal(err)
		}
		wantLastDrill(t, "of a backup that is deleted", c, 5)
	})
}

// TestDrillsSince checks that Drills returns the drills since a time, of all backups and with all verdicts, newest first.
func TestDrillsSince(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		stored.Create(t, c, stored.IDAt(0))
		stored.Create(t, c, stored.IDAt(1))
		stored.AppendProof(t, c, stored.ProofOf(stored.IDAt(0), catalog.Booted, catalog.Passed, 3))
		for n, v := range []catalog.Verdict{catalog.Passed, catalog.Failed, catalog.NotRun, catalog.Passed} {
			stored.AppendProof(t, c, drillOf(stored.IDAt(n%2), v, 1+n))
		}
		got, err := c.Drills(t.Context(), stored.Noon.Add(2*time.Hour))
		if err != nil || len(got) != 3 || got[0].Verdict != catalog.Passed || got[1].Verdict != catalog.NotRun || got[2].Verdict != catalog.Failed {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestLastDrillReadsTheDocument checks that LastDrill uses the time in a proof, not the one in its name, and ignores the
// future: a forged proof of next year would otherwise keep all drills from running until then.
func TestLastDrillReadsTheDocument(t *testing.T) {
	b := mem.New()
	owner := stored.NewSigner(t)
	policy := stored.Trust(t, owner.Public)
	policy.Key = owner.Key
	c := stored.OpenWith(t, b, policy)
	stored.Create(t, c, stored.IDAt(0))
	stored.AppendProof(t, c, drillOf(stored.IDAt(0), catalog.Passed, 1))
	stored.AppendProof(t, c, drillOf(stored.IDAt(0), catalog.Passed, 2))
	name := func(stamp string) string { return stored.Folder("c", stored.IDAt(0)) + "proof-" + stamp + ".json" }
	old := stored.Get(t, b, name(stored.Noon.Add(time.Hour).Format("20060102T150405.000Z")))
	stored.Put(t, b, name("20261123T000000.000Z"), old)
	stored.Put(t, b, name("20261123T000001.000Z"), stored.Noise(100))
	stored.Put(t, b, name("20261123T000002.000Z"), nil)
	stored.Put(t, b, name("tomorrow"), old)
	stored.AppendProof(t, stored.OpenForger(t, b), drillOf(stored.IDAt(0), catalog.Passed, 5)) // by an attacker without the key
	wantLastDrill(t, "among junk", c, 2)
	stored.AppendProof(t, c, drillOf(stored.IDAt(0), catalog.Passed, 101))
	wantLastDrill(t, "with one from the future", c, 2)
}

// TestLastDrillIsCheap checks that LastDrill lists once and reads only the newest proof.
func TestLastDrillIsCheap(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := stored.OpenCluster(t, b, "c")
	for n := range 50 {
		stored.Create(t, c, stored.IDAt(n))
		stored.AppendProof(t, c, drillOf(stored.IDAt(n), catalog.Passed, n))
	}
	lists, reads := b.Calls(storagetest.VerbList), b.Calls(storagetest.VerbOpen)
	wantLastDrill(t, "of fifty", c, 49)
	lists, reads = b.Calls(storagetest.VerbList)-lists, b.Calls(storagetest.VerbOpen)-reads
	if lists != 1 || reads != 1 {
		t.Errorf("%d listings, %d reads", lists, reads)
	}
	for _, verb := range []storagetest.Verb{storagetest.VerbList, storagetest.VerbOpen} {
		b.On(verb).Fail(stored.ErrTest)
		_, _, err := c.LastDrill(t.Context(), stored.Noon.Add(time.Hour*100))
		stored.WantError(t, "the store is away", err, stored.ErrTest)
	}
}
