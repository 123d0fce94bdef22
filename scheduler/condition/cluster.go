package condition

import "github.com/etcd-dr/etcd-dr/storage/check"

// rules maps the name of a failed check of cluster.Check to the function that adds its condition.
var rules = map[string]func(*judgement, check.Line){
	"endpoints answer":    (*judgement).silent,
	"quorum and leader":   (*judgement).quorum,
	"alarms":              (*judgement).alarms,
	"database size":       lineIs(AlarmRaised, Warning),
	"members in step":     lineIs(MembersAway, Warning),
	"HashKV equal":        lineIs(MembersDiverged, Critical),
	"can take snapshots":  lineIs(BackupFailing, Warning),
	"server certificates": (*judgement).certificate,
	"client certificate":  (*judgement).certificate,
}

// lineIs returns a rule that adds the named condition with the severity.
func lineIs(name Name, s Severity) func(*judgement, check.Line) {
	return func(j *judgement, l check.Line) { j.line(name, s, l) }
}

func (j *judgement) line(name Name, s Severity, l check.Line) {
	j.add(name, finding{s, "", l.Cure}, "%s", l.Seen)
}

// silent adds that members do not answer. If none does, no other check has run, and the condition is critical.
func (j *judgement) silent(l check.Line) {
	others := false
	for _, o := range j.Checks {
		others = others || o.Name == "quorum and leader" && o.Verdict != check.NotRun
	}
	j.line(MembersAway, warningIf(others), l)
}

// quorum adds that there is no quorum, or only that the leader does not answer this host.
func (j *judgement) quorum(l check.Line) {
	if l.Problem == check.NoQuorum {
		j.line(NoQuorum, Critical, l)
	} else {
		j.line(MembersAway, Warning, l)
	}
}

// alarms adds a condition for an alarm that a member has raised.
func (j *judgement) alarms(l check.Line) {
	if l.Problem == check.Corrupt {
		j.line(MembersDiverged, Critical, l)
	} else {
		j.line(AlarmRaised, Critical, l)
	}
}

// certificate adds that a certificate expires within the limit. The check reports it 30 days before, or earlier if the limit is higher.
func (j *judgement) certificate(l check.Line) {
	left := l.Ends.Sub(j.now)
	if left < j.Limits.Certificate {
		j.line(CertificateExpires, warningIf(left > certificateCritical), l)
	}
}
