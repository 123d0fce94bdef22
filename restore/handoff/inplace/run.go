package inplace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ActTime bounds the steps that read a catalog or the members' key spaces, and requestTime the others, which are a few requests: a store
// or an API server that does not answer must not stop a restore without a word, nor keep other restores waiting.
const (
	ActTime     = 5 * time.Minute
	requestTime = time.Minute
)

// isRequest reports whether a step consists of requests, also where the manager itself works on the disk: then others may take hours.
func isRequest(s handoff.Step) bool {
	switch s {
	case handoff.Take, handoff.Plan, handoff.Pin, handoff.Suspend, handoff.Verify, handoff.Lift,
		handoff.Retake, handoff.Resuspend, handoff.Recheck:
		return true
	}
	return false
}

func timeFor(s handoff.Step) time.Duration {
	switch s {
	case handoff.Plan, handoff.Verify, handoff.Recheck:
		return ActTime
	}
	return requestTime
}

// The times between two steps.
const (
	nextAfter  = time.Millisecond // the restore has made a step
	soonAfter  = time.Second      // members are stopped, or observed after their start
	laterAfter = 5 * time.Second  // the restore waits for another one, for Jobs, or for a store
)

// Pause returns how long to wait before the next step, after one that led from before to after; 0: none is left.
func Pause(before, after handoff.Record) time.Duration {
	switch {
	case after.Step == handoff.None:
		return 0
	case after.Step == handoff.Keep:
		return max(time.Until(after.KeepUntil), nextAfter)
	case after.Step != before.Step:
		return nextAfter
	case after.Phase == handoff.Pending, after.Phase == handoff.Planning, after.Phase == handoff.Staging:
		return laterAfter
	}
	return soonAfter
}

// Preview inspects the target, and returns a plan for it. It changes nothing. The error matches fault.Refused if a finding refuses the
// restore.
func (r *Restore) Preview(ctx context.Context) (handoff.Handoff, plan.Plan, error) {
	h, err := inspector{r.Manage(nil), r}.Inspect(ctx)
	if err != nil {
		return h, plan.Plan{}, err
	}
	i := slices.IndexFunc(h.Findings, func(f handoff.Finding) bool { return f.Refuses })
	if i >= 0 {
		return h, plan.Plan{}, fmt.Errorf("%w: %s", fault.Refused, h.Findings[i])
	}
	p, err := r.plan(ctx, h, nil)
	return h, p, err
}

// Run carries out the steps until none is due any more, and stores the record after each: so Run continues a restore that a kill has
// interrupted. stored is its record; zero: the restore begins. It returns the last record. The error matches fault.Busy if another process
// continues the restore at the same time.
func (r *Restore) Run(ctx context.Context, stored handoff.Record, w handoff.Orders) (handoff.Record, error) {
	target, steps := r.Manage(nil), r.Steps()
	record, err := r.begin(ctx, target, stored, w)
	if isDown(record) { // the limit is for the time in which a process works on the restore
		w.Limit += time.Since(record.Down)
	}
	for err == nil && isDue(record, w) {
		r.Watch(record)
		after := r.act(ctx, steps, record, w)
		err = ctx.Err()
		if err != nil {
			break // the step is repeated by the next process
		}
		err = store(ctx, target, record, after)
		if err != nil {
			break
		}
		if isDue(after, w) {
			err = storage.Sleep(ctx, Pause(record, after))
		}
		record = after
	}
	return record, err
}

// begin returns the record with which to continue. It stores that of a new restore.
func (r *Restore) begin(ctx context.Context, target Target, stored handoff.Record, w handoff.Orders) (handoff.Record, error) {
	if stored.ID != "" {
		return stored, nil
	}
	record := handoff.New(r.ID, w, now())
	record.Settings = r.Settings
	return record, target.Save(ctx, handoff.Record{}, record)
}

func now() time.Time { return time.Now().UTC() }

func isDown(r handoff.Record) bool { return !r.Down.IsZero() && r.Up.IsZero() }

// isDue reports whether a step of r is due, or a later one will be without another order.
func isDue(r handoff.Record, w handoff.Orders) bool {
	r = r.Obey(w, now())
	return r.Step != handoff.None && (r.Step != handoff.Keep || r.Due(w, now()) == handoff.Keep)
}

// act is Act, without a limit for the work on the disk of this host.
func (r *Restore) act(ctx context.Context, steps handoff.Restore, record handoff.Record, w handoff.Orders) handoff.Record {
	if r.Given != nil && !isRequest(record.Step) {
		return steps.Act(ctx, record, w, now)
	}
	return Act(ctx, steps, record, w)
}

// Act carries out the step of r that is due, within the time for such a step.
func Act(ctx context.Context, steps handoff.Restore, r handoff.Record, w handoff.Orders) handoff.Record {
	ctx, cancel := context.WithTimeout(ctx, timeFor(r.Step))
	defer cancel()
	return steps.Act(ctx, r, w, now)
}

// store replaces the record before by after. It repeats that until the API server allows it: the members must not
// depend on one request.
func store(ctx context.Context, target Target, before, after handoff.Record) error {
	if reflect.DeepEqual(before, after) {
		return nil
	}
	for {
		err := target.Save(ctx, before, after)
		if errors.Is(err, fault.Busy) && isStored(ctx, target, after) { // the answer of an earlier request was lost
			return nil
		}
		if err == nil || errors.Is(err, fault.Busy) || handoff.IsFinal(err) && !errors.Is(err, handoff.ErrForbidden) {
			return err
		}
		err = storage.Sleep(ctx, soonAfter)
		if err != nil {
			return err
		}
	}
}

// isStored reports whether r is the stored record.
func isStored(ctx context.Context, target Target, r handoff.Record) bool {
	found, err := target.Load(ctx, r.ID)
	if r.Step == handoff.None {
		return errors.Is(err, fault.NotFound)
	}
	return err == nil && encode(found) == encode(r)
}

func encode(r handoff.Record) string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // only texts, numbers and times
	}
	return string(text)
}

// Err returns the error of a restore that has ended: nil if the members serve the restored data, or if it was ordered to go back and did. A
// restore that went back and left all members stopped, or not serving, has an error.
func Err(r handoff.Record, w handoff.Orders) error {
	reason := strings.TrimPrefix(r.Reason, fault.Refused.Error()+": ")
	switch {
	case r.End == handoff.Failed && r.StaysStopped():
		return fmt.Errorf("the restore has gone back, and no member was started: %s", reason)
	case r.End == handoff.Failed && r.Silent:
		return fmt.Errorf("the restore has gone back: %s", reason)
	case w.Back && r.End != handoff.Succeeded, !w.Back && r.End == handoff.Succeeded:
		return nil
	case r.End == handoff.Succeeded:
		return fmt.Errorf("the restored data stays in place: %s", reason)
	case r.End == handoff.Refused:
		return fmt.Errorf("%w: no member was touched: %w", fault.Refused, errors.New(reason))
	}
	return fmt.Errorf("the restore has failed, and the old data is in place again: %s", reason)
}
