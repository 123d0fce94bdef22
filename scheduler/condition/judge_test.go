package condition_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/check"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
)

var now = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// well returns the facts of a healthy cluster with two repositories.
func well() condition.Facts {
	f := condition.Facts{
		Cluster: "prod", Since: now.Add(-30 * day),
		Agreed: condition.Agreed{Written: true, Slack: 5 * time.Minute, Encrypted: true, Proven: true, Drill: now.Add(time.Hour)},
		Log:    &condition.Log{Known: true, Lag: time.Second, Spool: 1 << 20, SpoolMax: 1 << 30},
	}
	for _, name := range []string{"main", "offsite"} {
		f.Repositories = append(f.Repositories, condition.Repository{
			URL: "s3://" + name, Locked: true, Signed: true,
			Standing: condition.Standing{
				Repository: name, At: now, Backups: 9, Bytes: 9000, Oldest: now.Add(-9 * day), Due: now.Add(30 * time.Minute),
				Good: &condition.Good{
					Last: condition.Last{ID: "20261121T083000Z-0000000000001267", Started: now.Add(-30 * time.Minute), Revision: 4711},
					Size: 1000, Stored: 400, Encrypted: true, Proven: catalog.Stored, ProvenAt: now.Add(-29 * time.Minute),
				},
				UsualSize: 1000, Keys: 100, UsualKeys: 100, Verified: now.Add(-day), Decrypted: now.Add(-day), Drilled: now.Add(-day),
				Drill:  &catalog.Proof{Verdict: catalog.Passed, Time: now.Add(-day), Drill: &catalog.Drill{}},
				Window: &catalog.Window{To: catalog.Point{Position: 9000, Revision: 4720, Time: now.Add(-time.Minute)}},
			},
		})
	}
	for _, name := range []string{
		"endpoints answer", "server certificates", "client certificate", "quorum and leader", "alarms", "one version", "database size",
		"members in step", "users", "can take snapshots", "HashKV equal",
	} {
		f.Checks = append(f.Checks, check.Line{Name: name, Verdict: check.OK, Ends: now.Add(300 * day)})
	}
	return f
}

// fault is a change of the facts for the worse.
type fault struct {
	name     condition.Name
	severity condition.Severity
	says     string // part of the message
	cure     string // part of the cure
	happen   func(f *condition.Facts)
}

// main changes the first repository.
func main(change func(r *condition.Repository)) func(*condition.Facts) {
	return func(f *condition.Facts) { change(&f.Repositories[0]) }
}

// both changes all repositories.
func both(change func(r *condition.Repository)) func(*condition.Facts) {
	return func(f *condition.Facts) {
		for i := range f.Repositories {
			change(&f.Repositories[i])
		}
	}
}

// line makes a check of the cluster wanting.
func line(name, seen string) func(*condition.Facts) { return problem("", name, seen) }

// problem makes a check of the cluster wanting because of p.
func problem(p check.Problem, name, seen string) func(*condition.Facts) {
	return func(f *condition.Facts) {
		for i, l := range f.Checks {
			if l.Name == name {
				f.Checks[i] = check.Line{Name: name, Verdict: check.Wanting, Seen: seen, Cure: "the check's cure", Ends: l.Ends, Problem: p}
			}
		}
	}
}

func certificate(days int) func(*condition.Facts) {
	return func(f *condition.Facts) {
		line("client certificate", "it runs out")(f)
		f.Checks[2].Ends = now.Add(time.Duration(days)*day + time.Hour)
	}
}

func gone(r *condition.Repository) {
	r.Good, r.Due, r.Backups, r.Oldest, r.Drill, r.Verified, r.Decrypted = nil, time.Time{}, 0, time.Time{}, nil, time.Time{}, time.Time{}
}

func late(r *condition.Repository) { r.Due = now.Add(-2 * time.Hour) }

func away(r *condition.Repository) { r.Problem = "access denied" }

const critical, warning = condition.Critical, condition.Warning

var faults = []fault{
	{condition.NoBackup, warning, "there is no backup", "dr backup --repo s3://main --cluster prod", main(gone)},
	{condition.NoBackup, critical, "there is no backup", "dr backup", both(gone)},
	{condition.BackupLate, warning, "due 2h0m ago", "dr serve", main(late)},
	{condition.BackupLate, critical, "due 2h0m ago", "dr trigger --cluster prod takes", both(late)},
	{condition.BackupFailing, warning, "3 tries have failed: connection refused", "dr check", func(f *condition.Facts) {
		f.Jobs.Failures, f.Jobs.Problem = 3, "connection refused"
	}},
	{condition.BackupFailing, warning, "permission denied", "the check's cure", line("can take snapshots", "permission denied")},
	{condition.ConfigRefused, warning, "dr.yaml:3: unknown key", "dr config check", func(f *condition.Facts) { f.Fault = `dr.yaml:3: unknown key "leese"` }},
	{condition.ClusterChanged, critical, "began anew", "dr pin latest --confirm", main(func(r *condition.Repository) { r.Changed = "the cluster began anew" })},
	{condition.BackupShrunk, warning, "has 499 B, earlier ones had 1000 B", "dr diff", main(func(r *condition.Repository) { r.Good.Size = 499 })},
	{condition.BackupShrunk, warning, "49 keys", "dr diff", main(func(r *condition.Repository) { r.Keys = 49 })},
	{condition.BackupDamaged, warning, "1 cannot be used: it is cut off", "dr verify --all", main(func(r *condition.Repository) {
		r.Damaged, r.Doubt = 1, "it is cut off"
	})},
	{condition.BackupDamaged, warning, "2 objects of the log cannot be used: it is cut off", "dr archive verify --headers", main(func(r *condition.Repository) {
		r.LogDamaged, r.LogDoubt = 2, "it is cut off"
	})},
	{condition.NeverProven, warning, "nothing was verified for 8 days", "dr drill", main(func(r *condition.Repository) { r.Verified = now.Add(-8 * day) })},
	{condition.NeverProven, warning, "none of the 9 backups", "dr drill", main(func(r *condition.Repository) { r.Verified = time.Time{} })},
	{condition.NeverDecrypted, warning, "no key", "--identity KEY", main(func(r *condition.Repository) { r.Decrypted = time.Time{} })},
	{condition.DrillFailed, critical, "a segment is missing", "dr drill", main(func(r *condition.Repository) {
		r.Drill.Verdict, r.Drill.Finding = catalog.Failed, "a segment is missing"
	})},
	{condition.DrillFailed, critical, "key=/a", "dr drill", main(func(r *condition.Repository) {
		r.FailedDrill = &catalog.Proof{Verdict: catalog.Failed, Finding: "key=/a is missing", Time: now.Add(-2 * day)}
	})},
	{condition.DrillFailed, critical, "it broke", "dr drill", func(f *condition.Facts) {
		f.Jobs.Drills = append(f.Jobs.Drills, condition.Drill{Repository: "main", Time: now, Verdict: catalog.Failed, Finding: "it broke"})
	}},
	{condition.DrillNotRun, warning, "no identity", "dr drill", main(func(r *condition.Repository) {
		r.Drill.Verdict, r.Drill.Finding = catalog.NotRun, "no identity"
	})},
	{condition.DrillNotRun, warning, "due 7h0m ago", "dr drill", func(f *condition.Facts) { f.Agreed.Drill = now.Add(-7 * time.Hour) }},
	{condition.RepositoryAway, warning, "access denied", "dr check --repo s3://main", main(away)},
	{condition.RepositoryAway, critical, "access denied", "dr check", both(away)},
	{condition.RetentionFailing, warning, "old backups stay: locked", "dr prune", func(f *condition.Facts) { f.Jobs.Unpruned = "locked" }},
	{condition.NotEncrypted, warning, "newest backup", "recipients", main(func(r *condition.Repository) { r.Good.Encrypted = false })},
	{condition.NotEncrypted, warning, "no recipients", "recipients", func(f *condition.Facts) { f.Agreed.Encrypted = false }},
	{condition.NotSigned, warning, "have no signature", "dr keygen --signing", main(func(r *condition.Repository) { r.Signed = false })},
	{condition.NotLocked, warning, "can delete", "dr check --lock", main(func(r *condition.Repository) { r.Locked = false })},
	{condition.LogGap, critical, "compacted", "dr backup", main(func(r *condition.Repository) { r.Gap = "compacted" })},
	{condition.LogGap, critical, "compacted", "dr backup", func(f *condition.Facts) { f.Log.Gap, f.Repositories[0].Logged = "compacted", true }},
	{condition.LogStopped, critical, "revision 4711", "dr archive", main(func(r *condition.Repository) {
		r.Window.To = catalog.Point{Revision: 4000, Time: now.Add(-time.Hour)}
	})},
	{condition.LogStopped, critical, "nothing restorable", "dr serve", func(f *condition.Facts) {
		f.Log, f.Repositories[0].Logged, f.Repositories[0].Window = nil, true, nil
	}},
	{condition.LogLagging, warning, "the last 6m0s", "until then", func(f *condition.Facts) { f.Log.Lag = 6 * time.Minute }},
	{condition.LogLagging, critical, "the last 31m0s", "until then", func(f *condition.Facts) { f.Log.Lag = 31 * time.Minute }},
	{condition.LogLagging, critical, "known to be stored: the folder is read-only", "until then", func(f *condition.Facts) {
		f.Log = &condition.Log{Problem: "the folder is read-only"}
	}},
	{condition.LogLagging, warning, "no write is known to be stored", "until then", func(f *condition.Facts) {
		f.Log, f.Since = &condition.Log{}, now.Add(-6*time.Minute)
	}},
	{condition.SpoolFilling, warning, "900 MiB of 1.0 GiB", "enlarge", func(f *condition.Facts) { f.Log.Spool = 900 << 20 }},
	{condition.MembersDiverged, critical, "hashes differ", "the check's cure", line("HashKV equal", "hashes differ")},
	{condition.MembersDiverged, critical, "CORRUPT", "the check's cure", problem(check.Corrupt, "alarms", "alarms: CORRUPT, NOSPACE")},
	{condition.MembersDiverged, critical, "two hashes", "within 5 minutes", func(f *condition.Facts) { f.Log.Diverged = "two hashes" }},
	{condition.NoQuorum, critical, "no quorum", "the check's cure", problem(check.NoQuorum, "quorum and leader", "linearizable reads fail: there is no quorum")},
	{condition.MembersAway, warning, "leader", "the check's cure", line("quorum and leader", "there is a quorum, but its leader does not answer at the given endpoints")},
	{condition.MembersAway, warning, "silent", "the check's cure", line("endpoints answer", "silent")},
	{condition.MembersAway, critical, "nobody", "the check's cure", func(f *condition.Facts) {
		for i := range f.Checks {
			f.Checks[i].Verdict = check.NotRun
		}
		line("endpoints answer", "nobody")(f)
	}},
	{condition.MembersAway, warning, "behind", "the check's cure", line("members in step", "behind")},
	{condition.AlarmRaised, critical, "NOSPACE", "the check's cure", line("alarms", "alarms: NOSPACE")},
	{condition.AlarmRaised, warning, "81% of the quota", "the check's cure", line("database size", "81% of the quota")},
	{condition.CertificateExpires, warning, "runs out", "the check's cure", certificate(13)},
	{condition.CertificateExpires, critical, "runs out", "the check's cure", certificate(1)},
	{condition.ClocksApart, warning, "log's newest segment has a time in the future: 2030-11-21T08:30:00Z", "clock of the host that archives the log", main(func(r *condition.Repository) {
		r.FutureLog = time.Date(2030, 11, 21, 8, 30, 0, 0, time.UTC)
	})},
	{condition.ClocksApart, warning, "in the future", "clock", main(func(r *condition.Repository) { r.Future = "20301121T083000Z-0000000000001267" })},
}

func TestNothingIsWrong(t *testing.T) {
	got := condition.Judge(well(), now)
	if len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestCuresHoldForEtcdBackups checks that a cure which names dr serve, its file or a verb for the file also has one for an EtcdBackup.
func TestCuresHoldForEtcdBackups(t *testing.T) {
	for i, fault := range faults {
		f := well()
		fault.happen(&f)
		for _, c := range condition.Judge(f, now) {
			serves := strings.Contains(c.Cure, "dr serve") && !strings.Contains(c.Cure, "dr operator")
			file := strings.Contains(c.Cure, "dr config") && !strings.Contains(c.Cure, "EtcdBackup")
			key := strings.Contains(c.Cure, "dr.yaml") && !strings.Contains(c.Cure, "EtcdBackup") && !strings.Contains(c.Cure, "or, in dr.yaml,")
			if serves || file || key || strings.Contains(c.Cure, "on the host of dr") {
				t.Errorf("fault %d, %s: the cure is for dr serve alone: %s", i, c.Name, c.Cure)
			}
		}
	}
}

func TestEachCondition(t *testing.T) {
	found := map[condition.Name]bool{}
	for i, fault := range faults {
		f := well()
		fault.happen(&f)
		got := condition.Judge(f, now)
		at := slices.IndexFunc(got, func(c condition.Condition) bool { return c.Name == fault.name })
		if at < 0 {
			t.Errorf("fault %d: no %s in %+v", i, fault.name, got)
			continue
		}
		c := got[at]
		found[c.Name] = true
		if c.Severity != fault.severity || !strings.Contains(c.Message, fault.says) || !strings.Contains(c.Cure, fault.cure) ||
			c.Cluster != "prod" || !c.Since.Equal(now) {
			t.Errorf("fault %d: %+v, want %s, with %q and the cure %q", i, c, fault.severity, fault.says, fault.cure)
		}
		for _, other := range got {
			if other.Name != fault.name {
				t.Errorf("fault %d, %s, also gives %+v", i, fault.name, other)
			}
		}
	}
	for _, name := range condition.Names {
		if !found[name] {
			t.Errorf("no facts give %s", name)
		}
	}
}

// A cluster whose configuration was never valid is not backed up.
func TestConfigRefusedWithNothingInEffect(t *testing.T) {
	got := condition.Judge(condition.Facts{Cluster: "prod", Fault: "dr.yaml:3: it is wrong"}, now)
	if len(got) != 1 || got[0].Severity != critical || !strings.Contains(got[0].Message, "not backed up: dr.yaml:3") {
		t.Errorf("%+v", got)
	}
}

// A plain installation neither signs nor proves, and was never asked to: permanent warnings teach people to ignore them. The
// condition is possible once a backup was verified, or if the configuration promises it.
func TestNothingIsWrongWithAPlainInstallation(t *testing.T) {
	f := well()
	f.Agreed.Proven = false
	both(func(r *condition.Repository) { r.Signed, r.Verified, r.Decrypted = false, time.Time{}, time.Time{} })(&f)
	got := condition.Judge(f, now)
	if len(got) != 0 {
		t.Errorf("%+v", got)
	}
	main(func(r *condition.Repository) { r.Verified = now.Add(-8 * day) })(&f)
	got = condition.Judge(f, now)
	if len(got) != 1 || got[0].Name != condition.NeverProven {
		t.Errorf("after a verify that nobody has repeated: %+v", got)
	}
}

// Values equal to a limit cause no condition.
func TestLimits(t *testing.T) {
	for name, happen := range map[string]func(f *condition.Facts){
		"late":      both(func(r *condition.Repository) { r.Due = now.Add(-5 * time.Minute) }),
		"suspended": func(f *condition.Facts) { both(late)(f); f.Agreed.Suspended = true; f.Agreed.Drill = now.Add(-day) },
		"failures":  func(f *condition.Facts) { f.Jobs.Failures = 2 },
		"size":      both(func(r *condition.Repository) { r.Good.Size, r.Keys = 500, 50 }),
		"uncounted": both(func(r *condition.Repository) { r.Keys, r.UsualSize, r.UsualKeys = 0, 0, 0 }),
		"proven":    both(func(r *condition.Repository) { r.Verified = now.Add(-7 * day) }),
		"young":     func(f *condition.Facts) { f.Since = now.Add(-6 * day); both(young)(f) },
		"drill":     func(f *condition.Facts) { f.Agreed.Drill = now.Add(-6 * time.Hour) },
		"drill before": func(f *condition.Facts) {
			f.Jobs.Drills = []condition.Drill{{Repository: "main", Time: now.Add(-2 * day), Verdict: catalog.Failed}}
		},
		"drill elsewhere": func(f *condition.Facts) {
			f.Jobs.Drills = []condition.Drill{{Repository: "gone", Time: now, Verdict: catalog.Failed}}
		},
		"log":         func(f *condition.Facts) { f.Log.Lag = 5 * time.Minute },
		"log unknown": func(f *condition.Facts) { f.Log, f.Since = &condition.Log{}, now.Add(-5*time.Minute) },
		"log at rest": both(func(r *condition.Repository) { r.Window.To = catalog.Point{Revision: 4711, Time: now.Add(-day)} }),
		"certificate": certificate(14),
		"not run":     line("HashKV equal", ""),
		"accepted": func(f *condition.Facts) {
			f.Limits.Accept = []condition.Name{condition.LogGap}
			f.Repositories[0].Gap = "it"
		},
		"raised": func(f *condition.Facts) { f.Limits.Lag = time.Hour; f.Log.Lag = time.Hour },
		"not written": func(f *condition.Facts) {
			f.Agreed = condition.Agreed{}
			both(func(r *condition.Repository) { r.Signed, r.Locked = false, false })(f)
		},
		"never told": both(func(r *condition.Repository) {
			r.Standing = condition.Standing{Repository: r.Repository, Problem: r.Problem}
		}),
	} {
		f := well()
		happen(&f)
		got := condition.Judge(f, now)
		switch name {
		case "not run":
			f.Checks[10].Verdict = check.NotRun
			got = condition.Judge(f, now)
		case "never told":
			got = slices.DeleteFunc(got, func(c condition.Condition) bool { return c.Name == condition.NoBackup })
		}
		if len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func young(r *condition.Repository) {
	r.Oldest, r.Verified, r.Decrypted = now.Add(-6*day), time.Time{}, time.Time{}
}

// With a short retention all backups are young. Judge still finds that none was proven if the service has observed for long
// enough.
func TestNeverProvenThoughAllAreYoung(t *testing.T) {
	f := well()
	both(young)(&f)
	got := condition.Judge(f, now)
	if len(got) != 2 || got[0].Name != condition.NeverProven {
		t.Errorf("%+v", got)
	}
}

// A repository that was never read is not known to be empty.
func TestUnreachableIsNotEmpty(t *testing.T) {
	f := condition.Facts{Cluster: "prod", Repositories: []condition.Repository{{Standing: condition.Standing{Repository: "main", Problem: "away"}}}}
	got := condition.Judge(f, now)
	if len(got) != 1 || got[0].Name != condition.RepositoryAway || got[0].Severity != critical {
		t.Errorf("%+v", got)
	}
}

// some draws facts in which several things have gone wrong.
func some(t *rapid.T) (f condition.Facts, of []int) {
	f = well()
	of = rapid.SliceOfNDistinct(rapid.IntRange(0, len(faults)-1), 0, 6, rapid.ID).Draw(t, "faults")
	for _, i := range of {
		happen(&f, i)
	}
	return f, of
}

// happen adds the ith fault to facts in which the broken thing may be missing.
func happen(f *condition.Facts, i int) {
	for j := range f.Repositories {
		r := &f.Repositories[j]
		if r.Good == nil {
			r.Good = &condition.Good{}
			defer func() { r.Good, r.Due = nil, time.Time{} }()
		}
		if r.Drill == nil {
			r.Drill = &catalog.Proof{}
			defer func() { r.Drill = nil }()
		}
		if r.Window == nil {
			r.Window = &catalog.Window{}
			defer func() { r.Window = nil }()
		}
	}
	if f.Log == nil {
		f.Log = &condition.Log{}
		defer func() { f.Log = nil }()
	}
	faults[i].happen(f)
}

func TestOrderMakesNoDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, _ := some(t)
		want := condition.Judge(f, now)
		seed := rapid.Uint64().Draw(t, "seed")
		r := rand.New(rand.NewPCG(seed, seed))
		shuffled := f
		shuffled.Repositories, shuffled.Checks = slices.Clone(f.Repositories), slices.Clone(f.Checks)
		r.Shuffle(len(shuffled.Checks), func(i, j int) { shuffled.Checks[i], shuffled.Checks[j] = shuffled.Checks[j], shuffled.Checks[i] })
		slices.Reverse(shuffled.Repositories)
		diff := cmp.Diff(want, condition.Judge(shuffled, now))
		if diff != "" {
			t.Fatalf("(-as it was +shuffled):\n%s", diff)
		}
	})
}

// instead maps a condition to those that may replace it in its repository.
var instead = map[condition.Name][]condition.Name{
	condition.BackupLate:     {condition.NoBackup},
	condition.BackupShrunk:   {condition.NoBackup},
	condition.NeverProven:    {condition.NoBackup},
	condition.NeverDecrypted: {condition.NoBackup, condition.NeverProven, condition.NotEncrypted},
	condition.NotEncrypted:   {condition.NoBackup},
	condition.LogStopped:     {condition.NoBackup},
	condition.DrillFailed:    {condition.NoBackup, condition.DrillNotRun},
	condition.DrillNotRun:    {condition.NoBackup, condition.DrillFailed},
	condition.NoQuorum:       {condition.MembersAway},
	condition.MembersAway:    {condition.NoQuorum},
	// Facts hold one log: a fault that replaces those of the log hides earlier ones. Without a backup, NoBackup covers the log.
	condition.LogLagging:      {condition.LogStopped, condition.NoBackup},
	condition.SpoolFilling:    {condition.LogLagging, condition.LogStopped, condition.NoBackup},
	condition.MembersDiverged: {condition.LogLagging, condition.LogStopped, condition.NoBackup, condition.AlarmRaised}, // one line has all alarms
	condition.AlarmRaised:     {condition.MembersDiverged, condition.MembersAway},
}

func TestMoreWrongIsNeverBetter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, _ := some(t)
		before := condition.Judge(f, now)
		i := rapid.IntRange(0, len(faults)-1).Draw(t, "more")
		happen(&f, i)
		after := condition.Judge(f, now)
		for _, b := range before {
			still := slices.ContainsFunc(after, func(a condition.Condition) bool {
				same := a.Repository == b.Repository || a.Repository == "" || b.Repository == ""
				return same && (a.Name == b.Name || slices.Contains(instead[b.Name], a.Name))
			})
			lines := faults[i].name == condition.MembersAway && b.Repository == "" // no more can be observed then
			if !still && !lines {
				t.Fatalf("with fault %d, %s, %s is gone: %+v", i, faults[i].name, b.Name, after)
			}
		}
	})
}

func TestMessagesOfConditions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, _ := some(t)
		got := condition.Judge(f, now)
		seen := map[string]bool{}
		for i, c := range got {
			if i > 0 && got[i-1].Severity == warning && c.Severity == critical {
				t.Fatalf("%s comes after a warning", c.Name)
			}
			key := fmt.Sprint(c.Name, c.Repository)
			if seen[key] || !slices.Contains(condition.Names, c.Name) || c.Cure == "" || c.Message == "" || strings.Contains(c.Message, "\n") {
				t.Fatalf("%+v", c)
			}
			seen[key] = true
		}
		for _, r := range f.Repositories {
			if seen[fmt.Sprint(condition.NoBackup, r.Repository)] && seen[fmt.Sprint(condition.BackupLate, r.Repository)] {
				t.Fatalf("%s has no backup, and is late", r.Repository)
			}
		}
	})
}
