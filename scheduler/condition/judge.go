package condition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"al.essio.dev/pkg/shellescape"
	"github.com/dustin/go-humanize"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/check"
)

// Judge returns the conditions that hold by the facts f, worst first: critical before warning, then in the order of Names. The
// order of the facts has no influence. Each Since is now; Record replaces it with the earlier one.
func Judge(f Facts, now time.Time) []Condition {
	j := judgement{Facts: f, now: now, found: []Condition{}}
	j.Limits = f.Limits.orDefaults()
	j.Repositories = slices.SortedFunc(slices.Values(f.Repositories), func(a, b Repository) int { return cmp.Compare(a.Repository, b.Repository) })
	for _, r := range j.Repositories {
		j.backups(r)
		j.proofs(r)
		j.drill(r)
		j.policy(r)
		j.log(r)
	}
	j.fault()
	j.encryption()
	j.jobs()
	j.archive()
	j.checks()
	slices.SortFunc(j.found, worstFirst)
	return j.found
}

func worstFirst(a, b Condition) int {
	return cmp.Or(byRank(a, b), cmp.Compare(a.Repository, b.Repository))
}

func byRank(a, b Condition) int {
	return cmp.Or(
		cmp.Compare(a.Severity, b.Severity), // "critical" comes before "warning"
		cmp.Compare(slices.Index(Names, a.Name), slices.Index(Names, b.Name)),
	)
}

// Compare compares two clusters by their conditions, sorted by Judge. The worse cluster comes first.
func Compare(a, b []Condition) int {
	for i := range min(len(a), len(b)) {
		worse := byRank(a[i], b[i])
		if worse != 0 {
			return worse
		}
	}
	return cmp.Compare(len(b), len(a))
}

// judgement holds the state of one Judge.
type judgement struct {
	Facts
	now   time.Time
	found []Condition
}

// finding holds the parts of a Condition that its rule determines.
type finding struct {
	severity Severity
	in       string // repository
	cure     string
}

// add adds a condition, unless it is accepted. If it exists already, add joins the messages, and keeps the worse severity.
func (j *judgement) add(name Name, w finding, format string, args ...any) {
	if slices.Contains(j.Limits.Accept, name) {
		return
	}
	c := Condition{
		Name: name, Severity: w.severity, Cluster: j.Cluster, Repository: w.in, Since: j.now.UTC(),
		Message: oneLine(fmt.Sprintf(format, args...)), Cure: w.cure,
	}
	i := slices.IndexFunc(j.found, func(f Condition) bool { return f.Name == name && f.Repository == w.in })
	if i < 0 {
		j.found = append(j.found, c)
		return
	}
	if w.severity == Critical {
		j.found[i].Severity = Critical
	}
	j.found[i].Message += "; " + c.Message
}

// oneLine joins the lines of errors.Join.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

// warningIf returns Warning if held, otherwise Critical.
func warningIf(held bool) Severity {
	if held {
		return Warning
	}
	return Critical
}

// command returns a line for a shell: the verb with its own flags, for the cluster in r.
func (j *judgement) command(verb string, r Repository) string {
	flags := []string{"--repo", cmp.Or(r.URL, r.Repository), "--cluster", j.Cluster}
	if r.CredentialsDir != "" {
		flags = append(flags, "--credentials", r.CredentialsDir)
	}
	return "dr " + verb + " " + shellescape.QuoteCommand(flags)
}

// drillCommand returns the command line of a drill in r, with a key if it needs one.
func (j *judgement) drillCommand(r Repository) string {
	if r.Good != nil && r.Good.Encrypted {
		return j.command("drill --identity KEY", r)
	}
	return j.command("drill", r)
}

// late returns how long the backup after r's newest good one is overdue, 0 if it is not.
func (j *judgement) late(r Repository) time.Duration {
	if j.Agreed.Suspended || r.Due.IsZero() || j.now.Sub(r.Due) <= j.Agreed.Slack {
		return 0
	}
	return j.now.Sub(r.Due)
}

// anotherInTime reports whether another repository has a good backup and is not late.
func (j *judgement) anotherInTime(r Repository) bool {
	return slices.ContainsFunc(j.Repositories, func(o Repository) bool {
		return o.Repository != r.Repository && o.Problem == "" && o.Good != nil && j.late(o) == 0
	})
}

func (j *judgement) backups(r Repository) {
	severity := warningIf(j.anotherInTime(r))
	if r.Problem != "" {
		j.add(RepositoryAway, finding{severity, r.Repository, j.command("check", r)}, "%s", r.Problem)
	}
	switch late := j.late(r); {
	case r.Good == nil && (r.Problem == "" || !r.At.IsZero()):
		j.add(NoBackup, finding{severity, r.Repository, j.command("backup", r) + ", with the cluster's endpoints and recipients"},
			"%s", cmp.Or(r.Doubt, "there is no backup"))
	case r.Good != nil && late > 0:
		j.backupLate(r, late)
	case r.Good != nil && r.Problem == "":
		j.behindOthers(r)
	}
	if r.Damaged > 0 {
		j.add(BackupDamaged, finding{Warning, r.Repository, j.command("verify --all", r)}, "%d cannot be used: %s", r.Damaged, r.Doubt)
	}
	if r.Diverged != "" {
		j.add(MembersDiverged, finding{Critical, r.Repository, divergedCure + ", and check that dr backup --compare-members exits with 0"}, "%s", r.Diverged)
	}
	switch {
	case r.Future != "":
		j.add(ClocksApart, finding{Warning, r.Repository, "correct the clock of the host that took it (chronyc tracking)"},
			"backup %s has a time in the future", r.Future)
	case !r.FutureLog.IsZero():
		j.add(ClocksApart, finding{Warning, r.Repository, "correct the clock of the host that archives the log (chronyc tracking)"},
			"the log's newest segment has a time in the future: %s", clock(r.FutureLog))
	}
	if r.Changed != "" {
		j.add(ClusterChanged, finding{Critical, r.Repository, "correct the endpoints, or restore the earlier data (" + j.command("list", r) +
			" names it); if the change is intended: " + j.command("pin latest --confirm", r)}, "%s", r.Changed)
	}
	j.shrunk(r)
}

// divergedCure begins the remedy of MembersDiverged.
const divergedCure = "find out which member is right, replace the other"

// backupLate adds BackupLate. While the backup waits for its turn, the condition is a warning until the next slot.
func (j *judgement) backupLate(r Repository, late time.Duration) {
	w := finding{warningIf(j.anotherInTime(r)), r.Repository, fmt.Sprintf("check that the service (dr serve, dr operator) runs, and read its log; dr trigger --cluster %s takes one now, and so does an EtcdBackup with like", j.Cluster)}
	waiting := ""
	if j.Jobs.Queued {
		waiting, w.cure = "; it waits for its turn among other clusters", "raise the concurrency of the service, or spread the schedules with a larger jitter"
		if late < r.Due.Sub(r.Good.Started) {
			w.severity = Warning
		}
	}
	j.add(BackupLate, w, "the last good backup was taken at %s, and the next was due %s ago%s%s", clock(r.Good.Started), span(late), waiting, because(r.Doubt))
}

// behindOthers adds BackupLate if another repository has a newer good backup than r. r itself is not late.
func (j *judgement) behindOthers(r Repository) {
	for _, o := range j.Repositories {
		if o.Good == nil || !o.Good.Started.After(r.Good.Started) || j.now.Sub(o.Good.Started) <= j.Agreed.Slack {
			continue
		}
		j.add(BackupLate, finding{Warning, r.Repository, fmt.Sprintf("the service copies it as soon as it can, unless it requires all repositories; by hand: dr copy from %s", o.Repository)},
			"the last good backup was taken at %s, and repository %s has one from %s%s", clock(r.Good.Started), o.Repository, clock(o.Good.Started), because(r.Doubt))
		return
	}
}

func because(doubt string) string {
	if doubt == "" {
		return ""
	}
	return ": " + doubt
}

func (j *judgement) shrunk(r Repository) {
	w := finding{Warning, r.Repository, "see what is missing: " + j.command("diff", r) + "; a defragmentation makes a database smaller too"}
	if r.Good != nil && j.isShrunk(r.Good.Size, r.UsualSize) {
		j.add(BackupShrunk, w, "the newest backup's database has %s, earlier ones had %s",
			bytes(r.Good.Size), bytes(r.UsualSize))
	}
	if r.Keys > 0 && j.isShrunk(r.Keys, r.UsualKeys) {
		j.add(BackupShrunk, w, "the last count was %d keys, and earlier backups had %d", r.Keys, r.UsualKeys)
	}
}

func (j *judgement) isShrunk(is, usual int64) bool {
	return float64(is) < j.Limits.Shrunk*float64(usual)
}

// proofs adds NeverProven or NeverDecrypted. The unproven time begins with the oldest kept backup, or at
// j.Since if that is earlier: with a short retention all backups are young. No condition holds if the configuration promises no
// proof and no proof was ever made.
func (j *judgement) proofs(r Repository) {
	if r.Backups == 0 || j.Agreed.Written && !j.Agreed.Proven && r.Verified.IsZero() {
		return
	}
	begin := r.Oldest
	if !j.Since.IsZero() && j.Since.Before(begin) {
		begin = j.Since
	}
	switch long := j.Limits.Proven; {
	case j.now.Sub(storage.Later(r.Verified, begin)) > long && r.Verified.IsZero():
		j.add(NeverProven, finding{Warning, r.Repository, j.drillCommand(r)}, "none of the %d backups was ever verified", r.Backups)
	case j.now.Sub(storage.Later(r.Verified, begin)) > long:
		j.add(NeverProven, finding{Warning, r.Repository, j.drillCommand(r)},
			"nothing was verified for %s", span(j.now.Sub(r.Verified)))
	case r.Good != nil && r.Good.Encrypted && r.Decrypted.IsZero() && j.now.Sub(begin) > long:
		j.add(NeverDecrypted, finding{Warning, r.Repository, j.command("verify --level opened --identity KEY", r)},
			"no key has been shown to open any of the %d backups", r.Backups)
	}
}

// drill adds a failed drill, unless a later one covers it, and a last drill that was not run. Only this service knows a drill
// whose proof could not be stored: j.Jobs.Drills has it.
func (j *judgement) drill(r Repository) {
	last, failed := drillOf(r.Repository, r.Drill), drillOf(r.Repository, r.FailedDrill)
	for _, d := range j.Jobs.Drills {
		if d.Repository == r.Repository && !d.Time.Before(last.Time) {
			last = d
		}
	}
	if last.Verdict == catalog.Failed {
		failed = last
	}
	cure := j.drillCommand(r)
	if failed.Verdict == catalog.Failed {
		j.add(DrillFailed, finding{Critical, r.Repository, cure}, "the drill at %s failed: %s", clock(failed.Time), failed.Finding)
	}
	if last.Verdict == catalog.NotRun {
		j.add(DrillNotRun, finding{Warning, r.Repository, cure}, "the drill at %s could not run: %s", clock(last.Time), last.Finding)
	}
}

// drillOf returns the drill in a repository that p proves, the zero Drill if p is nil.
func drillOf(in string, p *catalog.Proof) Drill {
	if p == nil {
		return Drill{}
	}
	return Drill{in, p.Time, p.Verdict, p.Finding}
}

// fault adds ConfigRefused. The condition is critical if no earlier configuration is in effect: the cluster is
// not backed up.
func (j *judgement) fault() {
	if j.Fault == "" {
		return
	}
	kept := len(j.Repositories) > 0
	without := "this cluster is not backed up"
	if kept {
		without = "the previous settings stay in effect"
	}
	j.add(ConfigRefused, finding{warningIf(kept), "", "correct it: the service reads it again by itself; dr config check checks a file, and the condition Accepted has the faults of an EtcdBackup"},
		"its configuration cannot be used, and %s: %s", without, j.Fault)
}

// policy adds missing signatures and locks.
func (j *judgement) policy(r Repository) {
	if j.Agreed.Written && !r.Signed && slices.ContainsFunc(j.Repositories, func(o Repository) bool { return o.Signed }) {
		j.add(NotSigned, finding{Warning, r.Repository, "create a key with dr keygen --signing, and name it as the repository's signKeyFile, or signKeySecret in an EtcdBackup"},
			"the backups here have no signature, although another of the cluster's repositories requires one")
	}
	if j.Agreed.Written && !r.Locked {
		j.add(NotLocked, finding{Warning, r.Repository, "take the right to delete versions from its credentials, or give it a lock, in a bucket with object locks (dr check --lock tests it)"},
			"everyone with the right to delete objects can delete every backup")
	}
}

const encryptedCure = "give the cluster recipients (spec.recipients in an EtcdBackup)"

func (j *judgement) encryption() {
	var plain []string
	for _, r := range j.Repositories {
		if r.Good != nil && !r.Good.Encrypted {
			plain = append(plain, r.Repository)
		}
	}
	switch {
	case len(plain) > 0:
		j.add(NotEncrypted, finding{Warning, "", encryptedCure + ", or pass --recipient to dr backup"},
			"the newest backup in %s is not encrypted: everyone who can read the bucket can read every Secret in it", strings.Join(plain, " and "))
	case j.Agreed.Written && !j.Agreed.Encrypted:
		j.add(NotEncrypted, finding{Warning, "", encryptedCure}, "the cluster has no recipients")
	}
}

func (j *judgement) log(r Repository) {
	gap := r.Gap
	if r.Logged && j.Log != nil { // the stored log shows a gap only when the first segment after it is stored
		gap = cmp.Or(gap, j.Log.Gap)
	}
	if gap != "" {
		j.add(LogGap, finding{Critical, r.Repository, j.command("backup", r) + ", a trigger gap: true in dr.yaml, or an EtcdBackup with like"},
			"no good backup has come after the last gap in the log: %s", gap)
	}
	if r.LogDamaged > 0 {
		j.add(BackupDamaged, finding{Warning, r.Repository, j.command("archive verify --headers", r)},
			"%d objects of the log cannot be used: %s", r.LogDamaged, r.LogDoubt)
	}
	w, good := r.Window, r.Good
	if w != nil && good != nil && good.Revision > w.To.Revision && good.Started.Sub(w.To.Time) > logStopped {
		j.add(LogStopped, finding{Critical, r.Repository, "check that dr archive, or the service that archives the log, runs, and read its log"},
			"the log ends at %s with revision %d, and the backup from %s has revision %d",
			clock(w.To.Time), w.To.Revision, clock(good.Started), good.Revision)
	}
	if w == nil && good != nil && j.neverLogged(r) {
		j.add(LogStopped, finding{Critical, r.Repository, "check that the service (dr serve, dr operator) runs, and read in its log about archiving"},
			"the log should be archived, but nothing restorable has been stored since the backup from %s", clock(good.Started))
	}
}

// neverLogged reports whether r should have contained log for a while. If this service archives the log, it returns false:
// LogLagging knows whether there were writes to store.
func (j *judgement) neverLogged(r Repository) bool {
	return r.Logged && j.Log == nil && !j.Agreed.Suspended && j.now.Sub(r.Good.Started) > logStopped
}

func (j *judgement) jobs() {
	n := j.Jobs.Failures
	if n >= j.Limits.Failures {
		j.add(BackupFailing, finding{Warning, "", "fix the cause; dr check with the cluster's endpoints looks for it"},
			"the last %d tries have failed: %s", n, j.Jobs.Problem)
	}
	if j.Jobs.Unpruned != "" {
		j.add(RetentionFailing, finding{Warning, "", "fix the cause; dr prune --dry-run shows what will be removed"},
			"old backups stay: %s", j.Jobs.Unpruned)
	}
	due := j.Agreed.Drill
	if !due.IsZero() && j.now.Sub(due) > j.Limits.DrillLate && !j.Agreed.Suspended {
		j.add(DrillNotRun, finding{Warning, "", "read in the log of the service about drills, or run dr drill by hand"},
			"a drill was due %s ago, and none was run", span(j.now.Sub(due)))
	}
}

func (j *judgement) archive() {
	l := j.Log
	if l == nil {
		return
	}
	lag := j.now.Sub(j.Since)
	if !l.Known && !j.Since.IsZero() && lag > j.Limits.Lag {
		j.add(LogLagging, finding{warningIf(lag <= lagCritical*j.Limits.Lag), "", "fix the cause; until then new writes exist only in etcd"},
			"no write is known to be stored%s", because(l.Problem))
	}
	if l.Known && l.Lag > j.Limits.Lag {
		j.add(LogLagging, finding{warningIf(l.Lag <= lagCritical*j.Limits.Lag), "", "fix the cause; until then the writes of that time exist only in etcd"},
			"not all writes of the last %s are stored%s", span(l.Lag), because(l.Problem))
	}
	if l.Diverged != "" {
		j.add(MembersDiverged, finding{Critical, "", divergedCure + "; archiving compares the members again within 5 minutes"}, "%s", l.Diverged)
	}
	if l.SpoolMax > 0 && float64(l.Spool) > j.Limits.Spool*float64(l.SpoolMax) {
		j.add(SpoolFilling, finding{Warning, "", "make the store available again, or enlarge the spool"},
			"%s of %s are waiting for the store", bytes(l.Spool), bytes(l.SpoolMax))
	}
}

// checks adds the conditions of failed checks.
func (j *judgement) checks() {
	lines := slices.SortedFunc(slices.Values(j.Checks), func(a, b check.Line) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Seen, b.Seen))
	})
	for _, l := range lines {
		rule, ok := rules[l.Name]
		if ok && l.Verdict == check.Wanting {
			rule(j, l)
		}
	}
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func bytes(n int64) string { return humanize.IBytes(uint64(max(0, n))) }

// span returns d in at most two units.
func span(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d >= time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return d.String()
}
