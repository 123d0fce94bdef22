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
	got, err := c.LastDrill(tb.Context(), stored.Noon.Add(100*time.Hour))
	ok := len(got) > 0
	if err != nil || ok != (n >= 0) || ok && (got[0].Drill == nil || !got[0].Time.Equal(stored.Noon.Add(time.Duration(n)*time.Hour))) {
		tb.Errorf("%s: %+v, %v; want one of %d h", what, got, err, n)
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

// partOf returns the proof of part n of a drill, n hours after noon.
func partOf(by string, n, parts int) catalog.Proof {
	p := drillOf(stored.IDAt(0), catalog.Passed, n)
	p.By, p.Drill.Part, p.Drill.Parts = by, n, parts
	return p
}

// TestLastDrillHasAllParts checks that LastDrill returns the proofs of all restores of the newest drill, among those of other hosts and of
// earlier drills, and no others.
func TestLastDrillHasAllParts(t *testing.T) {
	const a, b = "host a, dr v1", "host b, dr v1"
	for name, test := range map[string]struct {
		proofs []catalog.Proof
		want   int // the newest of them
		ended  bool
	}{
		"one part":                  {[]catalog.Proof{partOf(a, 1, 1)}, 1, true},
		"two parts":                 {[]catalog.Proof{partOf(a, 1, 2), partOf(a, 2, 2)}, 2, true},
		"two parts of three":        {[]catalog.Proof{partOf(a, 1, 3), partOf(a, 2, 3)}, 2, false},
		"the first alone":           {[]catalog.Proof{partOf(a, 1, 2)}, 1, false},
		"after an interrupted one":  {[]catalog.Proof{at(partOf(a, 1, 2), -3), partOf(a, 1, 2), partOf(a, 2, 2)}, 2, true},
		"after a longer one":        {[]catalog.Proof{at(partOf(a, 1, 3), -3), at(partOf(a, 2, 3), -2), partOf(a, 1, 2), partOf(a, 2, 2)}, 2, true},
		"a part is lost":            {[]catalog.Proof{at(partOf(a, 1, 2), -3), at(partOf(a, 2, 2), -2), partOf(a, 2, 2)}, 1, true},
		"another host's in between": {[]catalog.Proof{partOf(a, 1, 2), at(partOf(b, 1, 1), 1), at(partOf(a, 2, 2), 3)}, 2, true},
		"another host's after it":   {[]catalog.Proof{partOf(a, 1, 2), partOf(a, 2, 2), at(partOf(b, 1, 2), 5)}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := stored.OpenCluster(t, mem.New(), "c")
			stored.Create(t, c, stored.IDAt(0))
			for _, p := range test.proofs {
				stored.AppendProof(t, c, p)
			}
			got, err := c.LastDrill(t.Context(), stored.Noon.Add(time.Hour*100))
			newest := test.proofs[len(test.proofs)-1]
			if err != nil || len(got) != test.want || !got[0].Time.Equal(newest.Time) || catalog.DrillEnded(got) != test.ended {
				t.Fatalf("got %+v, %v", got, err)
			}
			for i, p := range got {
				if p.By != newest.By || p.Drill.Part != newest.Drill.Part-i {
					t.Errorf("proof %d is part %d by %s", i, p.Drill.Part, p.By)
				}
			}
		})
	}
}

// at returns p with the time n hours after noon.
func at(p catalog.Proof, n int) catalog.Proof {
	p.Time = stored.Noon.Add(time.Duration(n) * time.Hour)
	return p
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

// TestLastDrillIsCheap checks that LastDrill lists once and reads only the newest proof, or those of a day if the first part of the newest
// drill is missing.
func TestLastDrillIsCheap(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := stored.OpenCluster(t, b, "c")
	for n := range 50 {
		stored.Create(t, c, stored.IDAt(n))
		stored.AppendProof(t, c, drillOf(stored.IDAt(n), catalog.Passed, n))
	}
	wantCalls := func(last, most int) {
		t.Helper()
		lists, reads := b.Calls(storagetest.VerbList), b.Calls(storagetest.VerbOpen)
		wantLastDrill(t, "of fifty", c, last)
		lists, reads = b.Calls(storagetest.VerbList)-lists, b.Calls(storagetest.VerbOpen)-reads
		if lists != 1 || reads > most {
			t.Errorf("%d listings, %d reads, want one and %d", lists, reads, most)
		}
	}
	wantCalls(49, 1)
	stored.AppendProof(t, c, at(partOf("a host of its own", 2, 2), 50))
	wantCalls(50, 25)
	for _, verb := range []storagetest.Verb{storagetest.VerbList, storagetest.VerbOpen} {
		b.On(verb).Fail(stored.ErrTest)
		_, err := c.LastDrill(t.Context(), stored.Noon.Add(time.Hour*100))
		stored.WantError(t, "the store is away", err, stored.ErrTest)
	}
}
