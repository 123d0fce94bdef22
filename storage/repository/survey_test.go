package repository_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// surveyed returns a repository with thirty backups, one a minute and ten positions apart, and a log from the tenth of them on.
func surveyed(t *testing.T) (*storagetest.Faults, *repository.Cluster, []catalog.ID) {
	t.Helper()
	b := storagetest.Faulty(mem.New())
	c := stored.OpenCluster(t, b, "prod")
	var ids []catalog.ID
	for n := range 30 {
		m := stored.ManifestOf(stored.Content, stored.IDAt(n).Started())
		m.RaftIndex = uint64(10 * n)
		_, err := stored.TryCreate(t, c, stored.IDAt(n), m)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, stored.IDAt(n))
	}
	w := stored.NewWriter(t, "prod", stored.LineageID(1))
	w.Header.Last = 100
	for range 25 {
		stored.StoreSegments(t, c, w.Next(func(h *segment.Header) {
			second := 600 + 60*int(h.Seq)
			h.Marks, h.Written = []segment.Mark{stored.MarkAt(h.First-1, second-60), stored.MarkAt(h.Last, second)}, stored.At(second+1)
		}))
	}
	return b, c, ids
}

// A survey has the same totals as the complete catalog, but reads few manifests.
func TestSurveyReadsFew(t *testing.T) {
	b, c, all := surveyed(t)
	whole := stored.Load(t, c, backups.LoadOptions{Log: true})
	before := b.Calls(storagetest.VerbOpen)
	s := stored.Survey(t, c, repository.SurveyOptions{Newest: 4})
	n := b.Calls(storagetest.VerbOpen) - before
	if n > 4+8+1+25 {
		t.Errorf("%d reads of 4 backups, 8 that the window may begin with, the oldest, and 25 segments", n)
	}
	var bytes int64
	for _, b := range whole.Backups {
		bytes += b.Stored.Size
	}
	if s.Kept != 30 || s.Bytes != bytes || !s.Oldest.Equal(all[0].Started()) {
		t.Errorf("%d backups of %d bytes since %s, want 30 of %d since %s", s.Kept, s.Bytes, s.Oldest, bytes, all[0].Started())
	}
	if len(s.Backups) < 4 || cmp.Diff(whole.Backups[:4], s.Backups[:4]) != "" {
		t.Errorf("the newest are %v", stored.IDs(s.Catalog))
	}
	want := whole.Windows()
	if len(want) != 1 || want[0].From.Position != 100 {
		t.Fatalf("the windows are %+v", want)
	}
	diff := cmp.Diff(want, s.Windows())
	if diff != "" {
		t.Errorf("windows (-all +few):\n%s", diff)
	}
	again := stored.Survey(t, c, repository.SurveyOptions{})
	if cmp.Diff(whole, again.Catalog) != "" {
		t.Errorf("a survey of all has %d backups", len(again.Backups))
	}
}

func TestSurveyOfNothing(t *testing.T) {
	s := stored.Survey(t, stored.OpenCluster(t, mem.New(), "prod"), repository.SurveyOptions{Newest: 3})
	diff := told(repository.Survey{Catalog: catalog.Catalog{Cluster: "prod", Lineages: []catalog.Lineage{}}}, s)
	if diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A survey finds the newest proofs of any backup, and reads no more batches than it needs.
func TestSurveyReadsProofsUntilItIsEnough(t *testing.T) {
	b, c, all := surveyed(t)
	for n := range 20 { // older backups have newer proofs
		p := catalog.Proof{Backup: all[n], Level: catalog.Opened, Verdict: catalog.Passed, Time: stored.Noon.Add(-time.Duration(n) * time.Hour)}
		err := c.Append(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
	}
	stored.Put(t, b, stored.Folder("prod", all[0])+"proof-20300101T000000.000Z.json", []byte("junk"))
	err := c.Delete(t.Context(), catalog.Tombstone{Backup: all[1], Time: stored.Noon})
	if err != nil {
		t.Fatal(err)
	}
	of := func(enough func([]catalog.Proof) bool) (backups []catalog.ID) {
		for _, p := range stored.Survey(t, c, repository.SurveyOptions{Newest: 2, Enough: enough}).Latest {
			backups = append(backups, p.Backup)
		}
		return backups
	}
	got := of(nil)
	if len(got) != 8 { // of the backups that may be bases of the window
		t.Errorf("without more asked for the proofs are those of %v", got)
	}
	never := of(func([]catalog.Proof) bool { return false })
	want := slices.Concat(all[:1], all[2:20])
	if !slices.Equal(never, want) {
		t.Errorf("all proofs are of %v, want %v", never, want)
	}
	got = of(func(latest []catalog.Proof) bool { return latest[0].Backup == all[0] })
	if len(got) != 8+7 || got[0] != all[0] {
		t.Errorf("the first batch has the proofs of %v", got)
	}
}

func TestSurveyFailsWithItsStore(t *testing.T) {
	for _, verb := range []storagetest.Verb{storagetest.VerbList, storagetest.VerbOpen} {
		b, c, _ := surveyed(t)
		b.On(verb).Fail(stored.ErrTest)
		_, err := c.Survey(t.Context(), repository.SurveyOptions{Newest: 2})
		stored.WantError(t, string(verb), err, stored.ErrTest)
	}
}
