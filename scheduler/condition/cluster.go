package condition

import (
	"strings"

	"github.com/etcd-dr/etcd-dr/storage/check"
)

// rules say what a line of cluster.Check means that is wanting, by its name.
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

func lineIs(name Name, s Severity) func(*judgement, check.Line) {
	return func(j *judgement, l check.Line) { j.line(name, s, l) }
}

func (j *judgement) line(name Name, s Severity, l check.Line) {
	j.add(name, wrong{s, "", l.Cure}, "%s", l.Seen)
}

// silent: some members, or all, of which nothing else can then be found out.
func (j *judgement) silent(l check.Line) {
	others := false
	for _, o := range j.Checks {
		others = others || o.Name == "quorum and leader" && o.Verdict != check.NotRun
	}
	j.line(MembersAway, unless(others), l)
}

// quorum: a leader that does not answer here is another thing.
func (j *judgement) quorum(l check.Line) {
	if strings.Contains(l.Seen, "no quorum") {
		j.line(NoQuorum, Critical, l)
	} else {
		j.line(MembersAway, Warning, l)
	}
}

func (j *judgement) alarms(l check.Line) {
	if strings.Contains(l.Seen, "CORRUPT") {
		j.line(MembersDiverged, Critical, l)
	} else {
		j.line(AlarmRaised, Critical, l)
	}
}

// certificate: dr check, which a person reads before anything is urgent, speaks earlier.
func (j *judgement) certificate(l check.Line) {
	left := l.Ends.Sub(j.now)
	if left < j.Limits.Certificate {
		j.line(CertificateExpires, unless(left > certificateCritical), l)
	}
}
