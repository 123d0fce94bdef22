package repository_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

func proofsOf(tb testing.TB, c *repository.Cluster, id catalog.ID) []catalog.Proof {
	tb.Helper()
	b, err := stored.Load(tb, c, backups.LoadOptions{Proofs: true}).Find(id)
	if err != nil {
		tb.Fatal(err)
	}
	return b.Proofs
}

// TestAppend checks that proofs are read oldest first by the times in them, and that two of one millisecond are both kept.
func TestAppend(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		stored.Create(t, c, stored.IDAt(0))
		stored.Create(t, c, stored.IDAt(1))
		var want []catalog.Proof
		for i, at := range []time.Duration{0, 0, 100, time.Millisecond, time.Hour, -time.Hour, 200, time.Hour} {
			p := stored.ProofOf(stored.IDAt(0), catalog.Opened, catalog.Passed, 0)
			p.Time, p.Keys = stored.Noon.Add(at).In(time.FixedZone("", 3600)), int64(i)
			stored.AppendProof(t, c, p)
			p.Time = p.Time.UTC()
			want = append(want, p)
		}
		slices.SortStableFunc(want, func(a, b catalog.Proof) int { return a.Time.Compare(b.Time) })
		diff := cmp.Diff(want, proofsOf(t, c, stored.IDAt(0)))
		if diff != "" {
			t.Error(diff)
		}
		got := proofsOf(t, c, stored.IDAt(1))
		if len(got) > 0 {
			t.Errorf("the other backup has %v", got)
		}
		names := 0
		for _, key := range stored.Keys(t, b) {
			if strings.HasPrefix(key, stored.Folder("c", stored.IDAt(0))+"proof-20261121T1") && strings.HasSuffix(key, "Z.json") {
				names++
			}
		}
		if names != len(want) {
			t.Errorf("%d proofs are named as documented: %q", names, stored.Keys(t, b))
		}
	})
}

func TestAppendFails(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := stored.OpenCluster(t, b, "c")
	stored.Create(t, c, stored.IDAt(0))
	b.On(storagetest.VerbPut).Fail(stored.ErrTest)
	err := c.Append(t.Context(), stored.ProofOf(stored.IDAt(0), catalog.Hashed, catalog.Passed, 0))
	stored.WantError(t, "Append", err, stored.ErrTest)
	if err != nil && !strings.Contains(err.Error(), string(stored.IDAt(0))) {
		t.Errorf("%v does not name the backup", err)
	}
	for _, id := range []catalog.ID{"", "../../d/backups/x"} {
		err := c.Append(t.Context(), stored.ProofOf(id, catalog.Hashed, catalog.Passed, 0))
		if err == nil {
			t.Errorf("a proof of %q was stored", id)
		}
	}
	got := proofsOf(t, c, stored.IDAt(0))
	if len(got) > 0 || len(stored.Keys(t, b)) != 3 { // with the marker
		t.Errorf("%v, %q", got, stored.Keys(t, b))
	}
}

// TestDamagedProofs checks that damaged proofs prove nothing, and do not make the backup worse.
func TestDamagedProofs(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	stored.Create(t, c, stored.IDAt(0))
	good := stored.ProofOf(stored.IDAt(0), catalog.Hashed, catalog.Passed, 1)
	stored.AppendProof(t, c, good)
	document := encodedProof(t, stored.ProofOf(stored.IDAt(0), catalog.Hashed, catalog.Failed, 2))
	other := encodedProof(t, stored.ProofOf(stored.IDAt(1), catalog.Hashed, catalog.Failed, 2))
	for name, p := range map[string][]byte{
		"flipped":           stored.Flip(30, 1)(slices.Clone(document)),
		"cut":               document[:len(document)-1],
		"empty":             nil,
		"endless":           append(bytes.Repeat([]byte(" "), 1<<20), document...),
		"of another format": stored.Rewritten(t, document, `"format": 1`, `"format": 2`),
		"unknown level":     stored.Rewritten(t, document, `"hashed"`, `"felt"`),
		"unknown verdict":   stored.Rewritten(t, document, `"failed"`, `"perhaps"`),
		"another backup's":  other,
	} {
		stored.Put(t, b, stored.Folder("c", stored.IDAt(0))+"proof-20261121T150000.000Z.json", p)
		diff := cmp.Diff([]catalog.Proof{good}, proofsOf(t, c, stored.IDAt(0)))
		if diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	stored.Put(t, b, stored.Folder("c", stored.IDAt(0))+"proof-20261121T150000.000Z.json", document)
	got := proofsOf(t, c, stored.IDAt(0))
	if len(got) != 2 {
		t.Errorf("the one that was spoiled above: %v", got)
	}
}

// step is one proof of a series, an hour after the previous one.
type step struct {
	level   catalog.Level
	verdict catalog.Verdict
}

func TestBest(t *testing.T) {
	const (
		written, hashed, opened, booted = catalog.Stored, catalog.Hashed, catalog.Opened, catalog.Booted
		passed, failed, notRun          = catalog.Passed, catalog.Failed, catalog.NotRun
	)
	for name, c := range map[string]struct {
		steps  []step
		best   catalog.Level
		at     int // hours after noon; -1: the end of the backup
		failed int // index of the step that shows the backup to be bad; -1: none
	}{
		"no proof":                        {nil, written, -1, -1},
		"passed":                          {[]step{{hashed, passed}}, hashed, 0, -1},
		"higher and higher":               {[]step{{hashed, passed}, {opened, passed}, {booted, passed}}, booted, 2, -1},
		"a lower one later":               {[]step{{booted, passed}, {hashed, passed}}, booted, 0, -1},
		"the same again":                  {[]step{{opened, passed}, {opened, passed}}, opened, 1, -1},
		"not run":                         {[]step{{booted, notRun}}, written, -1, -1},
		"passed, then not run":            {[]step{{hashed, passed}, {booted, notRun}}, hashed, 0, -1},
		"only failed":                     {[]step{{written, failed}}, "", 0, 0},
		"failed above":                    {[]step{{hashed, passed}, {opened, failed}}, hashed, 0, 1},
		"failed above, never passed":      {[]step{{opened, failed}}, written, -1, 0},
		"failed at it":                    {[]step{{opened, passed}, {opened, failed}}, "", 1, 1},
		"failed below":                    {[]step{{booted, passed}, {hashed, failed}}, "", 1, 1},
		"failed below, not run since":     {[]step{{booted, passed}, {hashed, failed}, {booted, notRun}}, "", 1, 1},
		"failed, then passed":             {[]step{{opened, passed}, {opened, failed}, {hashed, passed}}, hashed, 2, -1},
		"failed, then passed as before":   {[]step{{opened, failed}, {opened, passed}}, opened, 1, -1},
		"passed, failed, failed":          {[]step{{booted, passed}, {opened, failed}, {hashed, failed}}, "", 1, 2},
		"failed, passed stored":           {[]step{{hashed, passed}, {hashed, failed}, {written, passed}}, written, 2, -1},
		"passed between failures above":   {[]step{{booted, failed}, {hashed, passed}, {booted, failed}}, hashed, 1, 2},
		"not run hides nothing":           {[]step{{hashed, failed}, {hashed, notRun}}, written, -1, 0},
		"failed above a failure below it": {[]step{{hashed, passed}, {written, failed}, {opened, failed}}, "", 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := catalog.Backup{Manifest: stored.ManifestOf(stored.Content, stored.Noon)}
			for i, s := range c.steps {
				b.Proofs = append(b.Proofs, stored.ProofOf(stored.IDAt(0), s.level, s.verdict, i))
			}
			want := b.Finished
			if c.at >= 0 {
				want = b.Proofs[c.at].Time
			}
			level, at := b.Best()
			if level != c.best || !at.Equal(want) {
				t.Errorf("best is %q at %v, want %q at %v", level, at, c.best, want)
			}
			p, bad := b.Failed()
			if bad != (c.failed >= 0) || bad && p != b.Proofs[c.failed] {
				t.Errorf("failed is %v, %+v, want %d", bad, p, c.failed)
			}
		})
	}
}

// TestDrills checks that a drill that fails because of anything but the backup's bytes neither makes it worse nor hides that it
// is bad.
func TestDrills(t *testing.T) {
	drill := func(v catalog.Verdict, blames catalog.Blame, n int) catalog.Proof {
		p := stored.ProofOf(stored.IDAt(0), catalog.Booted, v, n)
		p.Drill = &catalog.Drill{Target: "the newest backup", Blames: blames}
		return p
	}
	verify := stored.ProofOf(stored.IDAt(0), catalog.Booted, catalog.Passed, 0)
	bad := stored.ProofOf(stored.IDAt(0), catalog.Hashed, catalog.Failed, 0)
	for name, c := range map[string]struct {
		proofs []catalog.Proof
		best   catalog.Level
		failed bool
	}{
		"passed":                  {[]catalog.Proof{drill(catalog.Passed, "", 1)}, catalog.Booted, false},
		"not run":                 {[]catalog.Proof{verify, drill(catalog.NotRun, "", 1)}, catalog.Booted, false},
		"the backup":              {[]catalog.Proof{verify, drill(catalog.Failed, catalog.BlameBackup, 1)}, "", true},
		"the log":                 {[]catalog.Proof{verify, drill(catalog.Failed, catalog.BlameLog, 1)}, catalog.Booted, false},
		"an assertion":            {[]catalog.Proof{verify, drill(catalog.Failed, catalog.BlameAssertion, 1)}, catalog.Booted, false},
		"the log of a bad backup": {[]catalog.Proof{bad, drill(catalog.Failed, catalog.BlameLog, 1)}, catalog.Stored, true},
	} {
		b := catalog.Backup{Manifest: stored.ManifestOf(stored.Content, stored.Noon), Proofs: c.proofs}
		best, _ := b.Best()
		if best != c.best {
			t.Errorf("%s: the best is %q", name, best)
		}
		p, failed := b.Failed()
		if failed != c.failed || failed && p.Verdict != catalog.Failed {
			t.Errorf("%s: failed is %v, %+v", name, failed, p)
		}
		p, ok := b.LastDrill()
		if !ok || p.Drill == nil {
			t.Errorf("%s: the last drill is %+v", name, p)
		}
	}
	p, ok := (catalog.Backup{Proofs: []catalog.Proof{verify, bad}}).LastDrill()
	if ok {
		t.Errorf("a verify counts as drill: %+v", p)
	}
}

func TestDecrypted(t *testing.T) {
	without, with := stored.ProofOf(stored.IDAt(0), catalog.Hashed, catalog.Passed, 1), fullProof()
	for name, c := range map[string]struct {
		encryption string
		proofs     []catalog.Proof
		want       bool
	}{
		"not encrypted":      {"", nil, true},
		"no proof":           {"age", nil, false},
		"only its bytes":     {"age", []catalog.Proof{without}, false},
		"opened with a key":  {"age", []catalog.Proof{with}, true},
		"opened once before": {"age", []catalog.Proof{with, without}, true},
	} {
		b := catalog.Backup{Manifest: fullManifest(), Proofs: c.proofs}
		b.Seal.Encryption = c.encryption
		if b.Decrypted() != c.want {
			t.Errorf("%s: %v", name, b.Decrypted())
		}
	}
}
