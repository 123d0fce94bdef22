package condition_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// taken returns a backup of some hours ago.
func taken(hours int, size int64) catalog.Backup {
	b := catalog.Backup{Manifest: catalog.Manifest{
		Started: now.Add(-time.Duration(hours) * time.Hour), Revision: 4000, RevisionMax: 4000 + size,
		Plain: catalog.Blob{Size: size}, Stored: catalog.Blob{Size: size / 2},
	}}
	b.Finished = b.Started.Add(time.Second)
	b.ID = catalog.NewID(b.Started, b.Revision)
	return b
}

func nextHour(t time.Time) time.Time { return t.Truncate(time.Hour).Add(time.Hour) }

func standing(s repository.Survey) condition.Standing {
	return condition.NewStanding("main", s, nextHour, now)
}

func TestStanding(t *testing.T) {
	corrupt := taken(1, 900)
	corrupt.Alarms = []string{"CORRUPT"}
	best := taken(2, 1000)
	best.Seal = seal.Seal{Encryption: "age"}
	future := taken(-2, 800)
	drill := catalog.Proof{
		Backup: best.ID, Level: catalog.Booted, Verdict: catalog.NotRun, Time: now.Add(-time.Hour), Drill: &catalog.Drill{},
	}
	drilled := catalog.Proof{
		Backup: best.ID, Level: catalog.Booted, Verdict: catalog.Passed, Time: now.Add(-3 * time.Hour), Key: "age1", Drill: &catalog.Drill{},
	}
	got := standing(repository.Survey{
		Catalog: catalog.Catalog{
			Backups: []catalog.Backup{future, corrupt, best, taken(3, 2000), taken(4, 4000), taken(5, 3000)},
			Damaged: []catalog.Damage{{Err: errors.New("it is cut off")}}, Untrusted: []catalog.Damage{{Err: errors.New("forged")}},
		},
		Kept: 77, Bytes: 7000, Oldest: now.Add(-day), Latest: []catalog.Proof{drill, drilled},
	})
	want := condition.Standing{
		Repository: "main", At: now, Backups: 77, Damaged: 2, Bytes: 7000, Oldest: now.Add(-day), Doubt: "it is cut off", Future: future.ID,
		Good: &condition.Good{
			Last: condition.Last{ID: best.ID, Started: best.Started, Revision: 5000}, Size: 1000, Stored: 500, Encrypted: true,
			Proven: catalog.Stored, ProvenAt: best.Finished,
		},
		Due: now.Add(-time.Hour), UsualSize: 3000, Verified: drilled.Time, Decrypted: drilled.Time, Drilled: drilled.Time, Drill: &drill,
	}
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Keys are compared between backups, however often each was counted.
func TestStandingCountsKeys(t *testing.T) {
	var latest []catalog.Proof
	for i, keys := range []int64{50, 50, 100, 300, 200} {
		latest = append(latest, catalog.Proof{
			Backup: taken(i, 1).ID, Level: catalog.Opened, Verdict: catalog.Passed, Time: now.Add(-time.Duration(i) * time.Hour), Keys: keys,
		})
	}
	latest[1].Backup = latest[0].Backup
	replayed := latest[0]
	replayed.Keys, replayed.Drill, replayed.Time = 9999, &catalog.Drill{Requests: 5}, now
	failed := latest[0]
	failed.Keys, failed.Verdict = 1, catalog.Failed
	got := standing(repository.Survey{Latest: slices.Concat([]catalog.Proof{replayed, failed}, latest)})
	if got.Keys != 50 || got.UsualKeys != 200 {
		t.Errorf("%d keys, usually %d", got.Keys, got.UsualKeys)
	}
	got = standing(repository.Survey{Latest: latest[:3]})
	if got.Keys != 50 || got.UsualKeys != 0 {
		t.Errorf("of two backups: %d keys, usually %d", got.Keys, got.UsualKeys)
	}
}

// A drill with a wrong or forged time hides no later failed one.
func TestStandingFutureProof(t *testing.T) {
	failed := catalog.Proof{Level: catalog.Booted, Verdict: catalog.Failed, Time: now.Add(-time.Hour), Drill: &catalog.Drill{}}
	future := catalog.Proof{Level: catalog.Booted, Verdict: catalog.Passed, Time: now.Add(day), Key: "age1", Drill: &catalog.Drill{}}
	got := standing(repository.Survey{Latest: []catalog.Proof{future, failed}})
	if got.Drill == nil || got.Drill.Verdict != catalog.Failed || !got.Verified.IsZero() || !got.Drilled.IsZero() || !got.Decrypted.IsZero() {
		t.Errorf("%+v", got)
	}
}

// A passed drill ends the failure of an earlier one only if it tested the same part.
func TestStandingFailedDrill(t *testing.T) {
	older, newer := catalog.NewID(now.Add(-5*day), 5), catalog.NewID(now.Add(-time.Hour), 9)
	proof := func(backup catalog.ID, ago time.Duration, d catalog.Drill) catalog.Proof {
		return catalog.Proof{Backup: backup, Level: catalog.Booted, Verdict: catalog.Passed, Time: now.Add(-ago), Drill: &d}
	}
	failed := func(d catalog.Drill) catalog.Proof {
		p := proof(older, 2*day, d)
		p.Verdict = catalog.Failed
		return p
	}
	asserts := func(held bool, texts ...string) (all []catalog.Assertion) {
		for _, text := range texts {
			all = append(all, catalog.Assertion{Text: text, Held: held})
		}
		return all
	}
	expected := failed(catalog.Drill{Blames: catalog.BlameAssertion, Assertions: asserts(false, "key=/a", "key=/b")})
	log := failed(catalog.Drill{Blames: catalog.BlameLog, Lineage: "l", Position: 50, Requests: 9})
	backup := failed(catalog.Drill{Blames: catalog.BlameBackup})
	notRun := proof(newer, time.Hour, catalog.Drill{Assertions: asserts(true, "key=/a", "key=/b")})
	notRun.Verdict = catalog.NotRun
	for name, test := range map[string]struct {
		failed, later catalog.Proof
		covered       bool
	}{
		"no assertions":          {expected, proof(newer, time.Hour, catalog.Drill{}), false},
		"one assertion of two":   {expected, proof(newer, time.Hour, catalog.Drill{Assertions: asserts(true, "key=/a")}), false},
		"both assertions":        {expected, proof(newer, time.Hour, catalog.Drill{Assertions: asserts(true, "key=/b", "key=/a")}), true},
		"not run":                {expected, notRun, false},
		"without the log":        {log, proof(newer, time.Hour, catalog.Drill{}), false},
		"a shorter log":          {log, proof(older, time.Hour, catalog.Drill{Lineage: "l", Position: 49, Requests: 8}), false},
		"the same log":           {log, proof(older, time.Hour, catalog.Drill{Lineage: "l", Position: 50, Requests: 9}), true},
		"the log after a backup": {log, proof(newer, time.Hour, catalog.Drill{Lineage: "l", Position: 90, Requests: 3}), true},
		"an older backup":        {backup, proof(catalog.NewID(now.Add(-9*day), 1), time.Hour, catalog.Drill{}), false},
		"the same backup":        {backup, proof(older, time.Hour, catalog.Drill{}), true},
		"a newer backup":         {backup, proof(newer, time.Hour, catalog.Drill{}), true},
	} {
		t.Run(name, func(t *testing.T) {
			got := standing(repository.Survey{Latest: []catalog.Proof{test.later, test.failed}})
			covered := got.FailedDrill == nil
			if covered != test.covered {
				t.Errorf("covered: %t, want %t", covered, test.covered)
			}
		})
	}
}

// Reading proofs ends as soon as they contain the facts, and also if they never do.
func TestSurveyIsEnough(t *testing.T) {
	verify := catalog.Proof{Level: catalog.Hashed, Verdict: catalog.Passed, Time: now}
	opened := catalog.Proof{Level: catalog.Opened, Verdict: catalog.Passed, Time: now, Key: "age1"}
	drill := catalog.Proof{Level: catalog.Booted, Verdict: catalog.Failed, Time: now, Drill: &catalog.Drill{}}
	passed := drill
	passed.Verdict = catalog.Passed
	future := drill
	future.Time = now.Add(day)
	for i, test := range []struct {
		latest []catalog.Proof
		drills bool
		want   bool
	}{
		{nil, false, false},
		{[]catalog.Proof{verify}, false, false},
		{slices.Repeat([]catalog.Proof{verify}, 32), false, true},
		{slices.Repeat([]catalog.Proof{verify}, 32), true, false},
		{[]catalog.Proof{opened}, false, true},
		{[]catalog.Proof{opened}, true, false},
		{[]catalog.Proof{opened, drill}, true, true},
		{[]catalog.Proof{opened, passed}, true, false},
		{append(slices.Repeat([]catalog.Proof{passed}, 8), opened), true, true},
		{[]catalog.Proof{drill}, true, false},
		{[]catalog.Proof{future, opened}, true, false},
	} {
		got := condition.SurveyOptions(test.drills, now).Enough(test.latest)
		if got != test.want {
			t.Errorf("%d: %v, want %v", i, got, test.want)
		}
	}
}

// lineage returns a history that began some hours ago, with segments of an hour and ten positions each.
func lineage(name string, hours ...int) catalog.Lineage {
	l := catalog.Lineage{ID: strings.Repeat(name, 32)}
	for i, ago := range hours {
		var s catalog.Segment
		s.Cluster, s.ClusterID, s.Lineage, s.Seq = "prod", "cdf818194e3a8c32", l.ID, uint64(hours[0]-ago+1)
		s.First, s.Last, s.Size = 10*s.Seq-9, 10*s.Seq, 100
		s.Digest, s.Previous = fmt.Sprint(name, s.Seq), fmt.Sprint(name, s.Seq-1)
		if i == 0 {
			s.Previous = ""
		}
		s.End, s.Written = segment.End{Position: s.Last, Term: 2}, now.Add(-time.Duration(ago-1)*time.Hour)
		s.Marks = []segment.Mark{{Position: s.Last, Revision: int64(s.Last), Interval: segment.Interval{NotBefore: s.Written, NotAfter: s.Written}}}
		l.Segments = append(l.Segments, s)
	}
	return l
}

// The newest window counts, and of the gaps those that no good backup has come after.
func TestStandingOfALog(t *testing.T) {
	before, after := taken(8, 100), taken(1, 100)
	for _, b := range []*catalog.Backup{&before, &after} {
		b.Cluster, b.ClusterID = "prod", "cdf818194e3a8c32"
	}
	before.RaftIndex, before.Revision = 10, 10 // each request makes a revision
	after.RaftIndex, after.Revision = 85, 85
	whole, torn := lineage("a", 9, 8, 7, 6), lineage("a", 9, 8, 6, 5)
	// The agent that records a gap takes a backup at once, which can begin before the agent reads its first mark after the gap.
	base := before
	base.ID, base.Started, base.RaftIndex, base.Revision = taken(6, 100).ID, now.Add(-6*time.Hour-time.Second), 30, 30
	base.Finished = base.Started.Add(2 * time.Second)
	for name, test := range map[string]struct {
		backups []catalog.Backup
		log     catalog.Lineage
		gaps    int
		open    bool
		to      uint64
	}{
		"whole":        {[]catalog.Backup{before}, whole, 0, false, 40},
		"torn":         {[]catalog.Backup{before}, torn, 1, true, 20},
		"torn, mended": {[]catalog.Backup{after, before}, torn, 1, false, 20},
		"torn, based":  {[]catalog.Backup{base, before}, torn, 1, false, 50},
		"no backup":    {nil, torn, 1, true, 0},
	} {
		got := standing(repository.Survey{Catalog: catalog.Catalog{
			Cluster: "prod", Backups: test.backups, Lineages: []catalog.Lineage{test.log},
		}})
		var to uint64
		if got.Window != nil {
			to = got.Window.To.Position
		}
		if got.Gaps != test.gaps || (got.Gap != "") != test.open || to != test.to {
			t.Errorf("%s: %d gaps, open %q, a window to %d", name, got.Gaps, got.Gap, to)
		}
	}
}

// An agent whose clock is ahead dates the log's segments in the future.
func TestStandingOfALogFromTheFuture(t *testing.T) {
	l := lineage("a", 9, 8, 7, 6)
	for ahead, want := range map[time.Duration]bool{0: false, catalog.FutureAllowance: false, catalog.FutureAllowance + 1: true} {
		last := &l.Segments[3]
		last.Written = now.Add(ahead)
		got := standing(repository.Survey{Catalog: catalog.Catalog{Cluster: "prod", Lineages: []catalog.Lineage{l}}})
		if got.FutureLog.IsZero() == want || want && !got.FutureLog.Equal(last.Written) {
			t.Errorf("%s ahead: %v, want it in the future: %v", ahead, got.FutureLog, want)
		}
	}
}

// An index or a tombstone of the log that cannot be used is no gap, and not passed over. A segment is a gap.
func TestStandingOfADamagedIndex(t *testing.T) {
	l := lineage("a", 9, 8, 7, 6)
	l.Faults = []catalog.Fault{
		{Key: "index-1", Err: errors.New("index-1: damaged")}, {Key: "tombstone-1", Err: errors.New("tombstone-1: damaged")},
		{Key: "5", Seq: 5, Upto: 5, Err: errors.New("5: missing")},
	}
	got := standing(repository.Survey{Catalog: catalog.Catalog{Cluster: "prod", Lineages: []catalog.Lineage{l}}})
	if got.LogDamaged != 2 || got.LogDoubt != "index-1: damaged" || got.Gaps != 1 {
		t.Errorf("%d objects are damaged: %q; %d gaps", got.LogDamaged, got.LogDoubt, got.Gaps)
	}
}

// Each condition is a row of docs/conditions.md, in the same order, and there are no other rows.
func TestEachConditionIsDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "conditions.md"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []condition.Name
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		rows = append(rows, condition.Name(row[1]))
	}
	diff := cmp.Diff(condition.Names, rows)
	if diff != "" {
		t.Errorf("(-Names +docs/conditions.md):\n%s", diff)
	}
}

// The change may be older than the newest few backups, and a backup from the future shows nothing.
func TestStandingOfAChangedCluster(t *testing.T) {
	other := func(b catalog.Backup) catalog.Backup {
		b.ClusterID = "b"
		return b
	}
	newest := []catalog.Backup{other(taken(1, 900)), other(taken(2, 900))}
	for name, test := range map[string]struct {
		newest, past []catalog.Backup
		changed      bool
	}{
		"the same":          {newest: newest, past: []catalog.Backup{other(taken(90, 900))}},
		"another, long ago": {newest: newest, past: []catalog.Backup{taken(90, 900)}, changed: true},
		"from the future":   {newest: append([]catalog.Backup{taken(-2, 900)}, newest...)},
	} {
		got := standing(repository.Survey{Catalog: catalog.Catalog{Cluster: "prod", Backups: test.newest}, Past: test.past})
		if (got.Changed != "") != test.changed {
			t.Errorf("%s: changed %q", name, got.Changed)
		}
	}
}

// A difference in the log's newest segment, found by the agent, counts until a newer backup has compared the members.
func TestStandingOfADivergedLog(t *testing.T) {
	before, equal, marked := taken(3, 1000), taken(1, 1000), taken(1, 1000)
	equal.Compared, marked.Compared, marked.Diverged = true, true, "m3 has another hash"
	for name, test := range map[string]struct {
		newest  string // the difference in its segment
		backups []catalog.Backup
		words   string
	}{
		"no difference":         {"", []catalog.Backup{before}, ""},
		"a difference":          {"two hashes", []catalog.Backup{before}, "two hashes"},
		"found equal since":     {"two hashes", []catalog.Backup{equal, before}, ""},
		"found different since": {"two hashes", []catalog.Backup{marked, before}, "another hash"},
		"only an older segment": {"", []catalog.Backup{before}, ""},
		"without any backup":    {"two hashes", nil, "two hashes"},
	} {
		var older, newest catalog.Segment
		older.Written, older.Diverged = before.Started.Add(time.Minute), "over"
		newest.Written, newest.Diverged = before.Started.Add(2*time.Minute), test.newest
		log := catalog.Lineage{Segments: []catalog.Segment{older, newest}}
		got := standing(repository.Survey{Catalog: catalog.Catalog{Backups: test.backups, Lineages: []catalog.Lineage{log}}})
		if (got.Diverged == "") != (test.words == "") || !strings.Contains(got.Diverged, test.words) {
			t.Errorf("%s: %q, want %q", name, got.Diverged, test.words)
		}
	}
}

// The condition of diverged members lasts until a newer backup has compared them and found them equal. A backup without a
// comparison does not end it.
func TestStandingOfDivergedMembers(t *testing.T) {
	marked, silent, equal := taken(3, 1000), taken(2, 1000), taken(1, 1000)
	marked.Diverged, marked.Compared, equal.Compared = "m3 has another hash", true, true
	for name, test := range map[string]struct {
		backups []catalog.Backup
		found   bool
	}{
		"marked":               {[]catalog.Backup{marked}, true},
		"not compared since":   {[]catalog.Backup{silent, marked}, true},
		"found equal since":    {[]catalog.Backup{equal, silent, marked}, false},
		"found equal, and not": {[]catalog.Backup{silent, equal, marked}, false},
	} {
		got := standing(repository.Survey{Catalog: catalog.Catalog{Backups: test.backups}})
		facts := condition.Facts{Cluster: "prod", Repositories: []condition.Repository{{Standing: got}}}
		judged := condition.Judge(facts, now)
		i := slices.IndexFunc(judged, func(c condition.Condition) bool { return c.Name == condition.MembersDiverged })
		if (got.Diverged != "") != test.found || (i >= 0) != test.found {
			t.Errorf("%s: %q, %+v", name, got.Diverged, judged)
		}
		if test.found && (judged[i].Severity != condition.Critical || !strings.Contains(judged[i].Message, string(marked.ID)+": m3 has another hash")) {
			t.Errorf("%s: %+v", name, judged[i])
		}
	}
}
