package plan_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/golden"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

var now = started.Add(90 * time.Minute)

// fixedBackup returns a backup with a value in every field of its manifest.
func fixedBackup() catalog.Backup {
	members := append(stored.ThreeMembers(), catalog.Member{ID: "d", Name: "m4",
		PeerURLs: []string{"http://127.0.0.1:2383"}, Learner: true})
	digest := strings.Repeat("ab", 32)
	return catalog.Backup{Manifest: catalog.Manifest{
		Format: catalog.Manifests.Format, ID: catalog.NewID(started, 4711), Cluster: clusterName,
		Started: started, Finished: started.Add(2 * time.Second), DRVersion: "v1",
		ClusterID: "cafe", Member: members[0], Members: members, EtcdVersion: "3.7.3",
		Revision: 4711, RaftIndex: 5000, RaftTerm: 3,
		HashKV: &catalog.HashKV{Revision: 4711, CompactRevision: 4000, Hash: 0xbeef},
		Plain:  catalog.Blob{Name: "snapshot.db", Size: 20512, SHA256: digest},
		Stored: catalog.Blob{Name: "snapshot.db.zst.age", Size: 7000, SHA256: digest},
		Seal:   seal.Seal{Compression: "zstd", Encryption: "age", Recipients: []string{"age1qqqqqqqqqqqqq"}},
		Auth:   true, Kubernetes: true, KubernetesEncrypted: true, Alarms: []string{"NOSPACE"}, NoQuorum: true,
		Diverged: "m3 has another hash", Labels: catalog.Labels{"env": "prod <&> ä", "a": "b"},
	}}
}

func catalogOf(backups ...catalog.Backup) catalog.Catalog {
	return catalog.Catalog{Cluster: clusterName, Backups: backups, Signed: true}
}

func changed(b catalog.Backup, change func(*catalog.Backup)) catalog.Backup {
	change(&b)
	return b
}

func encode(t testing.TB, p plan.Plan) []byte {
	t.Helper()
	data, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func fixedPlan(t testing.TB) plan.Plan {
	t.Helper()
	p, err := plan.New(catalogOf(fixedBackup()), plan.Target{}, plan.Layout{Token: "token-1"}, now)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPlanGolden(t *testing.T) {
	got := encode(t, fixedPlan(t))
	golden.Want(t, filepath.Join("testdata", "plan.json"), got)
}

func TestPlanIsPure(t *testing.T) {
	backup := fixedBackup()
	backup.Proofs = []catalog.Proof{{Backup: backup.ID, Level: catalog.Opened, Verdict: catalog.Failed,
		Finding: "bad", Time: now}}
	catalog := catalogOf(backup)
	layout := plan.Layout{
		Members: []plan.Member{{Name: "b", PeerURLs: []string{"http://h:2"}},
			{Name: "a", PeerURLs: []string{"http://h:1"}}},
		Token: "t", Into: plan.Into{OutputDir: "/there"},
	}
	var first []byte
	for range 5 {
		p, err := plan.New(catalog, plan.Target{}, layout, now)
		if err != nil {
			t.Fatal(err)
		}
		got := encode(t, p)
		if first == nil {
			first = got
		} else if !bytes.Equal(first, got) {
			t.Fatalf("the same input gave two plans:\n%s\n%s", first, got)
		}
	}
	if layout.Members[0].Name != "b" || len(catalog.Backups[0].Proofs) != 1 {
		t.Error("the input was changed")
	}
}

// Every note is one that a person has to have read before the restore, so each must come, and only where it holds.
func TestPlanNotes(t *testing.T) {
	plain := changed(fixedBackup(), func(b *catalog.Backup) {
		b.Auth, b.Kubernetes, b.KubernetesEncrypted, b.Alarms, b.NoQuorum, b.Diverged = false, false, false, nil, false, ""
		b.Members = b.Members[:3]
	})
	for name, test := range map[string]struct {
		backup catalog.Backup
		layout plan.Layout
		note   string // the expected note, not counting the one on the backup's age; "": none
	}{
		"nothing": {backup: plain},
		"no quorum": {changed(plain, func(b *catalog.Backup) { b.NoQuorum = true }), plan.Layout{},
			"without a quorum"},
		"diverged": {changed(plain, func(b *catalog.Backup) { b.Diverged = "m3 differs" }), plan.Layout{},
			"m3 differs"},
		"users":                           {changed(plain, func(b *catalog.Backup) { b.Auth = true }), plan.Layout{}, "passwords"},
		"objects that were created later": {changed(plain, func(b *catalog.Backup) { b.Kubernetes = true }), plan.Layout{}, "volumes and load balancers stay"},
		"encrypted": {changed(plain, func(b *catalog.Backup) { b.KubernetesEncrypted = true }), plan.Layout{},
			"EncryptionConfiguration"},
		"alarm": {changed(plain, func(b *catalog.Backup) { b.Alarms = []string{"NOSPACE"} }), plan.Layout{},
			"NOSPACE is cleared"},
		"kept alarm": {changed(plain, func(b *catalog.Backup) { b.Alarms = []string{"NOSPACE"} }),
			plan.Layout{KeepAlarms: true}, "NOSPACE stays raised"},
		"learner": {changed(plain, func(b *catalog.Backup) { b.Members = fixedBackup().Members }),
			plan.Layout{}, "learner m4 is left out"},
		"failed verify": {changed(plain, func(b *catalog.Backup) {
			b.Proofs = []catalog.Proof{{Level: catalog.Opened, Verdict: catalog.Failed,
				Finding: "page 7 is bad"}}
		}), plan.Layout{}, "verify of this backup failed: page 7 is bad"},
		"passed verify": {backup: changed(plain, func(b *catalog.Backup) {
			b.Proofs = []catalog.Proof{{Level: catalog.Opened, Verdict: catalog.Passed}}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			test.layout.Token = "t"
			p, err := plan.New(catalogOf(test.backup), plan.Target{}, test.layout, now)
			if err != nil {
				t.Fatal(err)
			}
			age := slices.IndexFunc(p.Notes, func(n string) bool { return strings.Contains(n, "1h30m0s old") })
			if age < 0 {
				t.Fatalf("no note says how old the backup is: %q", p.Notes)
			}
			rest := slices.Delete(slices.Clone(p.Notes), age, age+1)
			if test.note == "" && len(rest) > 0 || test.note != "" &&
				(len(rest) != 1 || !strings.Contains(rest[0], test.note)) {
				t.Errorf("notes %q, want one with %q", rest, test.note)
			}
			if p.Backup.Proofs != nil {
				t.Error("proofs are in the plan: one more verify would give another ID")
			}
			for _, m := range p.Members {
				if m.Name == "m4" {
					t.Error("the learner is a member")
				}
			}
		})
	}
}

func TestPlanPicks(t *testing.T) {
	older := changed(fixedBackup(), func(b *catalog.Backup) {
		b.Started, b.Revision = started.Add(-time.Hour), 4000
		b.ID = catalog.NewID(b.Started, b.Revision)
	})
	cat := catalogOf(fixedBackup(), older)
	for id, want := range map[catalog.ID]catalog.ID{"": fixedBackup().ID, older.ID: older.ID} {
		p, err := plan.New(cat, plan.Target{Backup: id}, plan.Layout{Token: "t"}, now)
		if err != nil || p.Backup.ID != want {
			t.Errorf("asked for %q: got %v, %v, want %s", id, p.Backup, err, want)
		}
	}
}

func TestPlanDecodesToItself(t *testing.T) {
	p := fixedPlan(t)
	placed, err := p.Place(plan.Into{Name: "m2", DataDir: "/var/lib/etcd"})
	if err != nil {
		t.Fatal(err)
	}
	ofFile, err := plan.New(catalog.Catalog{}, plan.Target{File: "/x.db", SkipHashCheck: true},
		plan.Layout{Members: []plan.Member{{Name: "a", PeerURLs: []string{"http://h:1"}}}, Token: "t"}, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []plan.Plan{p, placed, ofFile} {
		got, err := plan.Decode(encode(t, p))
		if err != nil {
			t.Fatal(err)
		}
		diff := cmp.Diff(p, got)
		if diff != "" {
			t.Errorf("decoded (-want +got):\n%s", diff)
		}
	}
}

// A plan travels between hosts. One changed byte must never make another plan of it.
func TestPlanChangedByteIsRefusedOrHarmless(t *testing.T) {
	t.Parallel()
	p := fixedPlan(t)
	data := encode(t, p)
	var replacements []byte
	if !testing.Short() {
		replacements = append(replacements, '0', ' ', '"', '}', '1', 'x', ',', '{', '\\', 0, 0xff)
	}
	refused := 0
	for i := range data {
		for _, b := range append(replacements[:len(replacements):len(replacements)], data[i]^1, data[i]^0x20) {
			if b == data[i] {
				continue
			}
			other := bytes.Clone(data)
			other[i] = b
			got, err := plan.Decode(other)
			if err != nil && !errors.Is(err, plan.ErrLayout) {
				t.Fatalf("byte %d is %q: error %v is no ErrLayout", i, b, err)
			}
			if err == nil && !cmp.Equal(p, got) {
				t.Fatalf("byte %d is %q, and it is another plan:\n%s", i, b, cmp.Diff(p, got))
			}
			if err != nil {
				refused++
			}
		}
	}
	if refused < len(data)/2 {
		t.Errorf("only %d changes of %d bytes were refused", refused, len(data))
	}
}

func TestPlanRefusedAsAWhole(t *testing.T) {
	data := string(encode(t, fixedPlan(t)))
	for name, test := range map[string]struct{ text, words string }{
		"empty":         {"", "no plan of dr"},
		"no JSON":       {"backup", "no plan of dr"},
		"cut":           {data[:len(data)/2], "no plan of dr"},
		"twice":         {data + data, "follows the plan"},
		"a brace more":  {data + "}", "follows the plan"},
		"newer format":  {strings.Replace(data, `"format": 1`, `"format": 2`, 1), "format 2 is unknown"},
		"unknown field": {strings.Replace(data, `"format": 1`, `"format": 1, "also": 1`, 1), "also"},
		"other token":   {strings.Replace(data, "token-1", "token-2", 1), "--plan-out"},
		"another name":  {strings.Replace(data, `"name": "m1"`, `"name": "mx"`, 1), "--plan-out"},
		"keys swapped":  {strings.Replace(data, `"bump": {`, `"bump": { "auto": true,`, 1), "--plan-out"},
		"nothing in it": {`{"format":1,"id":"x"}`, "changed"},
	} {
		_, err := plan.Decode([]byte(test.text))
		if !errors.Is(err, plan.ErrLayout) || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%s: error %v, want ErrLayout with %q", name, err, test.words)
		}
	}
}

func FuzzDecodePlan(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("testdata", "plan.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add([]byte(`{"format":1,"id":"","members":null,"into":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := plan.Decode(data)
		if err != nil {
			if !errors.Is(err, plan.ErrLayout) {
				t.Fatalf("error %v is no ErrLayout", err)
			}
			return
		}
		again, err := plan.Decode(encode(t, p))
		if err != nil || !cmp.Equal(p, again) {
			t.Fatalf("what was decoded does not survive another round: %v\n%s", err, cmp.Diff(p, again))
		}
	})
}

// Only plans of one ID make one cluster, and where a host puts its member must not matter to it.
func TestPlanPlacedOnManyHostsIsOnePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z][a-z0-9.-]{0,8}`), 1, 5, rapid.ID).Draw(t,
			"members")
		layout := plan.Layout{
			Token: rapid.StringN(1, 20, 60).Draw(t,
				"token"), Bump: rapid.SampledFrom([]string{"", "auto", "0", "1000"}).Draw(t, "bump"),
			KeepAlarms: rapid.Bool().Draw(t, "keep"), OldIsDead: rapid.Bool().Draw(t, "dead"),
		}
		for i, name := range members {
			layout.Members = append(layout.Members,
				plan.Member{Name: name, PeerURLs: []string{fmt.Sprintf("https://%s:%d", name, 2380+i)}})
		}
		p, err := plan.New(catalogOf(fixedBackup()), plan.Target{}, layout, now)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range members {
			there, err := p.Place(plan.Into{Name: name,
				DataDir: "/" + rapid.StringMatching(`[a-z]{1,9}`).Draw(t, "dir")})
			if err != nil {
				t.Fatal(err)
			}
			if there.ID != p.ID {
				t.Fatalf("placed for %s it has ID %s, before %s", name, there.ID, p.ID)
			}
			there.Into = p.Into
			if !cmp.Equal(p, there) {
				t.Fatalf("more than Into differs: %s", cmp.Diff(p, there))
			}
		}
		other := layout
		other.Token += "x"
		q, err := plan.New(catalogOf(fixedBackup()), plan.Target{}, other, now)
		if err != nil ||
			q.ID == p.ID {
			t.Fatalf("another token, and the same ID (%v)", err)
		}
	})
}

// A log whose members were known to differ, or soon after, is one member's; a difference that was known only long after, or in a
// segment that the plan does not use, is not this plan's.
func TestPlanNotesThatMembersDiffered(t *testing.T) {
	for name, test := range map[string]struct {
		seq   uint64 // of the segment with the difference
		later time.Duration
		noted bool
	}{
		"while it was written":    {2, 0, true},
		"in its first segment":    {1, 0, true},
		"soon after":              {3, 0, true},
		"long after":              {3, 2 * time.Hour, false},
		"no difference was known": {0, 0, false},
	} {
		c := evenCatalog(3, 5)
		for i := range c.Lineages[0].Segments {
			s := &c.Lineages[0].Segments[i]
			s.Member = "8e9e05c52164694d"
			if s.Seq == test.seq {
				s.Diverged, s.Written = "two hashes", s.Written.Add(test.later)
			}
		}
		p, err := plan.New(c, plan.Target{Revision: 115}, plan.Layout{Token: "t"}, now)
		if err != nil {
			t.Fatal(err)
		}
		noted := slices.ContainsFunc(p.Notes, func(n string) bool {
			return strings.Contains(n, "different data") && strings.Contains(n, "two hashes") && strings.Contains(n, "member 8e9e05c52164694d")
		})
		if noted != test.noted {
			t.Errorf("%s: notes %q", name, p.Notes)
		}
	}
}

// Two agents archived one log next to members that had diverged: the revisions of the one contradict the other's.
func TestPlanNotesThatALogsMembersDisagree(t *testing.T) {
	for name, test := range map[string]struct {
		lower int64 // by how much the second member's revisions are
		other bool  // they are another member's
		noted bool
	}{
		"another member with fewer": {12, true, true},
		"another member with more":  {-1, true, true},
		"another that agrees":       {0, true, false},
		"the same member":           {12, false, false}, // that is damage
	} {
		c := evenCatalog(3, 5)
		for i := range c.Lineages[0].Segments {
			s := &c.Lineages[0].Segments[i]
			s.Member = "a1"
			if s.Seq > 1 {
				s.Marks[0].Revision -= test.lower
			}
			if s.Seq > 1 && test.other {
				s.Member = "b2"
			}
		}
		p, err := plan.New(c, plan.Target{}, plan.Layout{Token: "t"}, now)
		if err != nil {
			t.Fatal(err)
		}
		noted := slices.ContainsFunc(p.Notes, func(n string) bool {
			return strings.Contains(n, "the members disagree") && strings.Contains(n, "member a1 is at revision 110") && strings.Contains(n, "member b2")
		})
		if noted != test.noted {
			t.Errorf("%s: notes %q", name, p.Notes)
		}
	}
}

// A note on members that disagree names the newest backup of a member that is not the base's.
func TestPlanNamesABackupOfAnotherMember(t *testing.T) {
	for name, test := range map[string]struct {
		member  string // of the newest backup; the older one, the base, is of member a
		cluster string // the newest backup's, if another
		want    string
	}{
		"a backup of another member":  {member: "b", want: "dr restore %s restores the data of member b"},
		"all of one member":           {member: "a", want: "all backups are of member a"},
		"another member's, elsewhere": {member: "b", cluster: "beef", want: "all backups are of member a"},
	} {
		c := evenCatalog(3, 5, 15)
		c.Backups[0].Member.ID = test.member
		if test.cluster != "" {
			c.Backups[0].ClusterID = test.cluster
		}
		c.Lineages[0].Segments[0].Diverged = "two hashes"
		p, err := plan.New(c, plan.Target{Revision: 107}, plan.Layout{Token: "t"}, now)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(test.want, "%s", string(c.Backups[0].ID))
		notes := strings.Join(p.Notes, "\n")
		if !strings.Contains(notes, want) {
			t.Errorf("%s: no %q in:\n%s", name, want, notes)
		}
	}
}

// The base is of one member and the log of another that has diverged from it.
func TestPlanNotesThatTheBaseDisagrees(t *testing.T) {
	for name, test := range map[string]struct {
		more   int64  // revisions of the base
		member string // of the log; the base's is a
		noted  bool
	}{
		"it agrees":            {0, "b", false},
		"one more is no proof": {1, "b", false}, // the index may be one too high
		"too many":             {7, "b", true},
		"too few":              {-4, "b", true},
		"the same member's":    {7, "a", false}, // that is damage
	} {
		c := evenCatalog(3, 15)
		c.Backups[0].Revision += test.more
		c.Backups[0].RevisionMax += test.more
		for i := range c.Lineages[0].Segments {
			c.Lineages[0].Segments[i].Member = test.member
		}
		p, err := plan.New(c, plan.Target{}, plan.Layout{Token: "t"}, now)
		if err != nil {
			t.Fatal(err)
		}
		noted := slices.ContainsFunc(p.Notes, func(n string) bool {
			return strings.Contains(n, "the members disagree") && strings.Contains(n, "in backup "+string(c.Backups[0].ID)) && strings.Contains(n, "member b")
		})
		if noted != test.noted {
			t.Errorf("%s: notes %q", name, p.Notes)
		}
	}
}
