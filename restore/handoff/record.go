package handoff

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Record holds the progress of a restore. Its owner stores it after each step. It contains no secret.
type Record struct {
	ID    string `json:"id"` // 16 hex digits; names the restore's folders on the disks
	Phase Phase  `json:"phase"`
	Step  Step   `json:"step,omitempty"`
	End   Phase  `json:"end,omitempty"` // the phase in which the restore ends; "": not decided yet

	Since     time.Time `json:"since"`              // when the phase began
	Begun     time.Time `json:"begun,omitzero"`     // when Planning began first
	Paused    bool      `json:"paused,omitempty"`   // its owner has ordered a pause, now or before
	Took      Took      `json:"took,omitempty"`     // durations of the earlier phases
	Staged    bool      `json:"staged,omitempty"`   // Stage has begun
	Vacant    bool      `json:"vacant,omitempty"`   // no disk had old data, so there is nothing to go back to
	Down      time.Time `json:"down,omitzero"`      // when Fence began; zero: no member was stopped
	Sealed    bool      `json:"sealed,omitempty"`   // Seal has begun: old data may have been moved aside
	Silent    bool      `json:"silent,omitempty"`   // the members that a rollback has started again were not found to serve
	Returned  time.Time `json:"returned,omitzero"`  // when the manager began to run the members again in a rollback
	Served    time.Time `json:"served,omitzero"`    // when the members were first found to serve after Down
	Up        time.Time `json:"up,omitzero"`        // when their manager had settled too
	KeepUntil time.Time `json:"keepUntil,omitzero"` // data that was moved aside is kept until then
	Stays     bool      `json:"stays,omitempty"`    // the restored data stays: the order to roll back after the success failed, for Reason

	Forbidden time.Time `json:"forbidden,omitzero"` // since when the manager's API has forbidden the step; zero: it does not

	Waiting string     `json:"waiting,omitempty"` // why the step is not done yet
	Reason  string     `json:"reason,omitempty"`  // why the restore was refused, or was rolled back
	Members []Progress `json:"members,omitempty"` // of the last task, in the order of Handoff.Members
	Lost    []string   `json:"lost,omitempty"`    // names of the members whose disks were found without old data on the way back

	Untouched []string `json:"untouched,omitempty"` // once Staged: names of the members on whose disks no process of Stage has worked

	Handoff Handoff    `json:"handoff,omitzero"` // since Plan
	Plan    *plan.Plan `json:"plan,omitempty"`   // since Plan
	Met     []Met      `json:"met,omitempty"`    // obstacles, which Plan avoids
	Built   Built      `json:"built,omitzero"`   // since Stage
	Agreed  Agreed     `json:"agreed,omitzero"`  // since Verify

	Rebuilt bool `json:"rebuilt,omitempty"` // an earlier record was lost: see Rebuild

	Settings string `json:"settings,omitempty"` // the settings with which the restore began, in a form of the owner's
}

// Took has the durations of phases that have ended, in seconds.
type Took map[Phase]float64

// Met is an obstacle that a plan met on a disk.
type Met struct {
	Plan     plan.Plan     `json:"plan"`
	Obstacle plan.Obstacle `json:"obstacle"`
	Error    fault.Packed  `json:"error"`
}

// New returns the Record of a restore that begins now.
func New(id string, w Orders, now time.Time) Record {
	first := Take
	if w.DryRun { // it changes nothing, so it need not wait for another restore
		first = Plan
	}
	return Record{ID: id}.begin(first, now)
}

// begin returns r at the start of step s.
func (r Record) begin(s Step, now time.Time) Record {
	phase := rows[s].phase
	if phase != "" && phase != r.Phase {
		r = r.enter(phase, now)
		r.Members = nil
	}
	r.Step, r.Waiting, r.Forbidden = s, "", time.Time{}
	switch s {
	case Plan:
		if r.Begun.IsZero() {
			r.Begun = now
		}
	case Recheck:
		r.Returned = now
	case Stage:
		if !r.Staged {
			r.Untouched = namesOf(r.Handoff.Members)
		}
		r.Staged = true
	case Fence, Refence:
		if !r.isDown() {
			r.Down, r.Served, r.Up = now, time.Time{}, time.Time{}
		}
	case Seal:
		r.Sealed = true
	}
	return r
}

// enter returns r at the start of phase p.
func (r Record) enter(p Phase, now time.Time) Record {
	took := Took{}
	maps.Copy(took, r.Took)
	if r.Phase != "" {
		took[r.Phase] += now.Sub(r.Since).Seconds()
	}
	r.Phase, r.Since, r.Took = p, now, took
	return r
}

// touch returns r without the untouched members of which a task did not find that no process has worked on their disks.
func (r Record) touch(all []Progress) Record {
	isIdle := func(name string) bool {
		for i, m := range r.Handoff.Members {
			if m.Name == name && i < len(all) {
				return all[i].Idle
			}
		}
		return false
	}
	r.Untouched = slices.DeleteFunc(slices.Clone(r.Untouched), func(name string) bool { return !isIdle(name) })
	return r
}

func namesOf(members []Member) (names []string) {
	for _, m := range members {
		names = append(names, m.Name)
	}
	return names
}

// isDown reports whether members may be stopped.
func (r Record) isDown() bool { return !r.Down.IsZero() && r.Up.IsZero() }

// IsStaged reports whether the new data is complete on all disks, or in use.
func (r Record) IsStaged() bool {
	return r.End == Succeeded || r.Step.isForward() && !slices.Contains([]Step{Take, Plan, Pin, Stage}, r.Step)
}

// StaysStopped reports whether a rollback starts no member, because so many have lost their old data that the others are no quorum.
func (r Record) StaysStopped() bool {
	return 2*len(r.Lost) >= len(r.Handoff.Members) && len(r.Lost) > 0
}

// loss describes the old data that is lost, as the end of a reason; "" if none is.
func (r Record) loss() string {
	if len(r.Lost) == 0 {
		return ""
	}
	text := fmt.Sprintf("; the old data of %s is lost, and a file keeps etcd from starting there", strings.Join(r.Lost, ", "))
	if r.StaysStopped() && len(r.Lost) < len(r.Handoff.Members) {
		text += "; the other members are no quorum, so all stay stopped"
	}
	return text + ": restore again to build new data there"
}

// follow returns r after its step is done.
func (r Record) follow(w Orders, now time.Time) Record {
	switch r.Step {
	case Plan:
		if w.DryRun {
			return r.end(Planned, now)
		}
	case Verify:
		r.End, r.Up = Succeeded, now
	case Recheck:
		r.End, r.Up, r.KeepUntil = Failed, now, time.Time{}
		r.Reason += r.loss()
	case Lift:
		if r.KeepUntil.IsZero() {
			r.KeepUntil = now.Add(w.Keep)
		}
		if !r.Sealed {
			return r.end(r.End, now)
		}
		r = r.enter(r.End, now)
	case Clean:
		return r.end(r.End, now)
	}
	return r.begin(rows[r.Step].next, now)
}

// end returns r in its last phase, with nothing left to do.
func (r Record) end(p Phase, now time.Time) Record {
	if r.Phase != p {
		r = r.enter(p, now)
	}
	r.Step, r.End, r.Waiting, r.Members = None, p, "", nil
	return r
}

// leave abandons the restore: r begins the rollback if members were stopped, else it ends.
func (r Record) leave(why string, now time.Time) Record {
	r.Reason = why
	switch {
	case r.End == Succeeded: // Retake or Review: the restored data stays
		r.Stays = true
		return r.begin(Lift, now)
	case r.isDown() && r.Sealed:
		return r.begin(Refence, now)
	case r.isDown():
		return r.begin(Return, now)
	case r.Staged:
		r.End = Refused
		return r.begin(Discard, now)
	}
	r.End = Refused
	return r.begin(Lift, now)
}
