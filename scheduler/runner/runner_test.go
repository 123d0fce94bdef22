package runner_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/scheduler/runner"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
)

func TestNext(t *testing.T) {
	type facts = runner.Facts
	for _, test := range []struct {
		name   string
		from   runner.State
		facts  facts
		to     runner.State
		action runner.Action
	}{
		{"its turn", runner.Queued, facts{}, runner.Asking, runner.ReadSuspension},
		{"new settings", runner.Queued, facts{Withdrawn: true, Requested: true}, runner.Ended, runner.Drop},
		{"stopped in the queue", runner.Queued, facts{Failed: true, Stopping: true, Requested: true}, runner.Ended, runner.Drop},
		{"not suspended", runner.Asking, facts{}, runner.Leasing, runner.AcquireLease},
		{"suspended", runner.Asking, facts{Suspended: true, Requested: true}, runner.Ended, runner.Skip},
		{"no repository answers", runner.Asking, facts{Failed: true}, runner.Ended, runner.Retry},
		{"no repository answers a request", runner.Asking, facts{Failed: true, Requested: true}, runner.Ended, runner.Report},
		{"lease held", runner.Leasing, facts{Held: true, Overdue: true, Requested: true}, runner.Admitting, runner.TakeSlot},
		{"lease elsewhere", runner.Leasing, facts{Overdue: true}, runner.Ended, runner.StandBy},
		{"lease elsewhere, requested", runner.Leasing, facts{Requested: true}, runner.Ended, runner.Postpone},
		{"lease elsewhere for long", runner.Leasing, facts{Requested: true, Overdue: true}, runner.Ended, runner.Refuse},
		{"slot", runner.Admitting, facts{}, runner.Comparing, runner.ReadStored},
		{"new settings in the wait for a slot", runner.Admitting, facts{Withdrawn: true, Requested: true}, runner.Ended, runner.Drop},
		{"stopped without a slot", runner.Admitting, facts{Failed: true, Stopping: true}, runner.Ended, runner.Drop},
		{"still due", runner.Comparing, facts{}, runner.Working, runner.Work},
		{"done meanwhile", runner.Comparing, facts{Stored: true}, runner.Ended, runner.Done},
		{"done meanwhile, requested", runner.Comparing, facts{Stored: true, Requested: true}, runner.Ended, runner.Adopt},
		{"lease lost", runner.Comparing, facts{Failed: true, Lost: true}, runner.Ended, runner.GiveUp},
		{"worked", runner.Working, facts{}, runner.Recording, runner.Record},
		{"worked while the service stops", runner.Working, facts{Stopping: true}, runner.Recording, runner.Record},
		{"failed", runner.Working, facts{Failed: true}, runner.Ended, runner.Retry},
		{"failed on request", runner.Working, facts{Failed: true, Requested: true}, runner.Ended, runner.Report},
		{"failed while the service stops", runner.Working, facts{Failed: true, Stopping: true}, runner.Ended, runner.Drop},
		{"stopped at work", runner.Working, facts{Failed: true, Lost: true, Stopping: true, Requested: true}, runner.Ended, runner.GiveUp},
		{"recorded", runner.Recording, facts{}, runner.Ended, runner.Done},
		{"ended", runner.Ended, facts{Failed: true}, runner.Ended, runner.Done},
	} {
		to, action := runner.Next(test.from, test.facts)
		if to != test.to || action != test.action {
			t.Errorf("%s: got %s, %s, want %s, %s", test.name, to, action, test.to, test.action)
		}
	}
}

// steps are the actions of a run without obstacles.
var steps = []runner.Action{
	runner.Queue, runner.ReadSuspension, runner.AcquireLease, runner.TakeSlot, runner.ReadStored, runner.Work, runner.Record,
}

func anyFacts(t *rapid.T, requested bool) runner.Facts {
	draw := func(name string) bool { return rapid.Bool().Draw(t, name) }
	return runner.Facts{
		Requested: requested, Withdrawn: draw("withdrawn"), Suspended: draw("suspended"), Held: draw("held"), Overdue: draw("overdue"),
		Stored: draw("stored"), Failed: draw("failed"), Lost: draw("lost"), Stopping: draw("stopping"),
	}
}

// With any facts, a run ends, takes its steps in their order, and works only after every check has passed.
func TestEveryRunEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requested := rapid.Bool().Draw(t, "requested")
		state, action := runner.Queued, runner.Queue
		var done []runner.Action
		var seen []runner.Facts
		for state != runner.Ended {
			done = append(done, action)
			facts := anyFacts(t, requested)
			seen = append(seen, facts)
			state, action = runner.Next(state, facts)
		}
		if len(done) > len(steps) || !slices.Equal(done, steps[:len(done)]) {
			t.Fatalf("steps %v", done)
		}
		for i, facts := range seen[:len(seen)-1] {
			waits := done[i] == runner.Queue || done[i] == runner.TakeSlot
			if facts.Failed || waits && facts.Withdrawn || done[i] == runner.ReadSuspension && facts.Suspended ||
				done[i] == runner.AcquireLease && !facts.Held || done[i] == runner.ReadStored && facts.Stored {
				t.Fatalf("after %s with %+v the run continued", done[i], facts)
			}
		}
		checkEnd(t, action, seen[len(seen)-1])
	})
}

// checkEnd checks that a person's request is never dropped without a cause, and that only due jobs are retried.
func checkEnd(t *rapid.T, end runner.Action, last runner.Facts) {
	if slices.Contains(steps, end) {
		t.Fatalf("the run ended with the step %s", end)
	}
	requests := []runner.Action{runner.Postpone, runner.Refuse, runner.Adopt, runner.Report}
	if slices.Contains(requests, end) && !last.Requested {
		t.Fatalf("%s without a request", end)
	}
	due := []runner.Action{runner.StandBy, runner.Retry}
	if slices.Contains(due, end) && last.Requested {
		t.Fatalf("%s of a request", end)
	}
	if end == runner.Drop && !last.Withdrawn && !last.Stopping {
		t.Fatalf("dropped with %+v", last)
	}
	if end == runner.GiveUp && !last.Lost {
		t.Fatalf("given up with %+v", last)
	}
}
