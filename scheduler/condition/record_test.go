package condition_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
)

func conditionOf(name condition.Name, s condition.Severity) condition.Condition {
	return condition.Condition{Name: name, Severity: s, Cluster: "prod", Repository: "main"}
}

// step is one observation: its time and its result.
type step struct {
	at   time.Duration
	is   condition.Severity // of a LogGap; "": there is none
	tell string             // the reported changes
	last time.Duration      // age of the last condition
}

func TestRecordReportsChanges(t *testing.T) {
	for name, steps := range map[string][]step{
		"stays":              {{0, critical, "", 0}, {time.Minute, critical, "begins", 0}, {time.Hour, critical, "", 0}, {2 * time.Hour, "", "", 0}, {2*time.Hour + time.Minute, "", "ends", 0}},
		"comes and goes":     {{0, warning, "", 0}, {30 * time.Second, "", "", 0}, {3 * time.Minute, "", "", 0}, {time.Hour, warning, "", time.Hour}},
		"goes and comes":     {{0, warning, "", 0}, {time.Hour, warning, "begins", 0}, {2 * time.Hour, "", "", 0}, {2*time.Hour + 30*time.Second, warning, "", 0}, {3 * time.Hour, warning, "", 0}, {3*time.Hour + time.Second, "", "", 0}},
		"flaps":              {{0, warning, "", 0}, {20 * time.Second, "", "", 0}, {40 * time.Second, warning, "", 0}, {60 * time.Second, "", "", 0}, {80 * time.Second, warning, "begins", 0}},
		"gets worse":         {{0, warning, "", 0}, {time.Hour, warning, "begins", 0}, {2 * time.Hour, critical, "begins", 0}, {3 * time.Hour, warning, "", 0}, {4 * time.Hour, critical, "", 0}},
		"gets better untold": {{0, critical, "", 0}, {30 * time.Second, warning, "", 0}, {time.Minute, warning, "begins", 0}},
	} {
		var r condition.Record
		for i, step := range steps {
			var judged []condition.Condition
			if step.is != "" {
				c := conditionOf(condition.LogGap, step.is)
				c.Since = now.Add(step.at)
				judged = append(judged, c)
			}
			current, changes := r.Update(judged, now.Add(step.at))
			if len(current) != len(judged) || len(judged) == 1 && !current[0].Since.Equal(now.Add(step.last)) {
				t.Errorf("%s, step %d: it is %+v", name, i, current)
			}
			var told string
			for _, c := range changes {
				told += string(c.State)
				if !c.Since.Equal(now.Add(step.last)) || c.Name != condition.LogGap || !c.Time.Equal(now.Add(step.at)) {
					t.Errorf("%s, step %d: %+v", name, i, c)
				}
			}
			if told != step.tell {
				t.Errorf("%s, step %d: told is %q, want %q", name, i, told, step.tell)
			}
		}
	}
}

func TestUnsettled(t *testing.T) {
	var r condition.Record
	var got []bool
	judged := []condition.Condition{conditionOf(condition.LogGap, warning)}
	judged[0].Since = now.Add(time.Minute)
	for i, is := range [][]condition.Condition{nil, judged, judged, nil, nil} {
		r.Update(is, now.Add(time.Duration(i)*time.Minute))
		got = append(got, r.Unsettled())
	}
	want := []bool{false, true, false, true, false}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestCloseSendsPendingMessages(t *testing.T) {
	var r condition.Record
	told, untold := conditionOf(condition.LogGap, warning), conditionOf(condition.NoBackup, critical)
	told.Since, untold.Since = now, now.Add(time.Hour)
	r.Update([]condition.Condition{told}, now)
	r.Update([]condition.Condition{told, untold}, now.Add(time.Hour))
	want := []condition.Change{{State: condition.Ends, Time: now.Add(time.Hour), Condition: told}}
	diff := cmp.Diff(want, r.Close(now.Add(time.Hour)))
	if diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
