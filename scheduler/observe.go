package scheduler

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

const (
	observeGather = 2 * time.Second  // pruning ends shortly after a backup: one survey sees both
	observeRest   = 15 * time.Second // least time between two surveys of a cluster
	observeAnew   = 6 * time.Hour    // after which everything is read again: a listing does not show decay on a disk
	readTime      = 2 * time.Minute  // for reading all repositories of a cluster
	checkTime     = time.Minute      // for checking the cluster itself
)

// observer computes the conditions of one cluster from its repositories and from checks of the cluster itself. It has a
// goroutine of its own, so no backup waits for it. Only that goroutine uses the fields from since on.
type observer struct {
	service *Service
	board   *board
	nudges  chan struct{}
	gone    func() // is called if no repository lists the newest backup that the worker remembers

	mu         sync.Mutex // guards assignment and looked
	assignment assignment
	looked     time.Time // end of the last survey; before the first, the start of the observer

	since     time.Time // start of run
	memory    memory
	standings []Standing
	lines     []check.Line
	record    condition.Record
	known     time.Time // when all repositories had answered for the first time; zero: not yet
	current   bool      // whether TellCurrent was called
}

// memory holds documents that need not be read again. It is valid for one Spec: another may trust other keys.
type memory struct {
	digest string
	began  time.Time                // when the memory was empty
	seen   map[string]*backups.Seen // by repository; one for each of the Spec
}

func newObserver(s *Service, b *board, o assignment) *observer {
	return &observer{service: s, board: b, nudges: make(chan struct{}, 1), assignment: o, looked: time.Now()}
}

// nudge causes a survey soon. It is called when the facts about the cluster may have changed. Any goroutine may call it.
func (o *observer) nudge() {
	select {
	case o.nudges <- struct{}{}:
	default: // one is due already
	}
}

// assign replaces the assignment by next.
func (o *observer) assign(next assignment) {
	o.mu.Lock()
	changed := next.spec.Digest != o.assignment.spec.Digest || next.fault != o.assignment.fault
	o.assignment = next
	o.mu.Unlock()
	if changed {
		o.nudge()
	}
}

// discardNudge discards the nudge that the next survey makes superfluous.
func (o *observer) discardNudge() {
	select {
	case <-o.nudges:
	default:
	}
}

func (o *observer) assigned() assignment {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.assignment
}

// run makes surveys until ctx ends. If service, the context of the whole service, has not ended by then, the cluster was
// removed, and run ends its conditions.
func (o *observer) run(ctx, service context.Context) {
	o.since = time.Now()
	wait := time.Second + spec.Spread(min(o.assigned().spec.Observe, time.Minute), o.assigned().spec.Cluster) // observers that start together must not read together
	for sleep(ctx, o.nudges, wait) == nil {
		if sleep(ctx, nil, observeGather) != nil {
			break
		}
		o.discardNudge()
		assigned := o.assigned()
		spec := assigned.spec
		if spec.Observe == 0 {
			o.clear()
			wait = 0
			continue
		}
		o.survey(ctx, spec, assigned.group)
		if sleep(ctx, nil, min(observeRest, spec.Observe)) != nil {
			break
		}
		wait = spec.Observe
		if o.record.Unsettled() || !o.known.IsZero() && !o.current {
			wait = min(wait, condition.Settle)
		}
	}
	if service.Err() == nil {
		o.report(o.record.Close(time.Now()))
	}
}

// clear ends all conditions and forgets everything that was read: without surveys no condition is known
// to hold.
func (o *observer) clear() {
	o.report(o.record.Close(time.Now()))
	o.standings, o.lines, o.memory = nil, nil, memory{}
	o.board.set(func(s *Status) { s.Standings, s.Conditions = []Standing{}, []condition.Condition{} })
}

// sleep waits for a nudge, or for wait if that is above 0. It returns ctx's error.
func sleep(ctx context.Context, nudges <-chan struct{}, wait time.Duration) error {
	var over <-chan time.Time
	if wait > 0 {
		over = time.After(wait)
	}
	select {
	case <-ctx.Done():
	case <-nudges:
	case <-over:
	}
	return ctx.Err()
}

// survey reads the repositories and checks the cluster. It publishes after each of the two: the state of the repositories must
// not wait for a cluster that does not answer.
func (o *observer) survey(ctx context.Context, spec spec.Spec, group *repositoryGroup) {
	if len(spec.Repositories) == 0 {
		o.publish()
		o.recordSurvey()
		return
	}
	if group.reads.do(ctx, readTime, func(ctx context.Context) { o.read(ctx, spec) }) != nil {
		return
	}
	o.publish()
	if o.service.Check != nil {
		checks := semaphores{o.service.checks}
		if checks.do(ctx, checkTime, func(ctx context.Context) { o.lines = o.service.Check(ctx, spec) }) != nil {
			return
		}
		o.publish()
	}
	o.tellCurrent()
	o.recordSurvey()
}

// tellCurrent calls TellCurrent once, after all repositories have answered and the conditions of that moment have settled. On
// standby it does not: the other service knows more about the jobs.
func (o *observer) tellCurrent() {
	now, unknown := time.Now(), func(s Standing) bool { return s.At.IsZero() }
	if o.known.IsZero() && !slices.ContainsFunc(o.standings, unknown) {
		o.known = now
	}
	if o.current || o.known.IsZero() || now.Sub(o.known) < condition.Settle || o.board.get().State == Standby {
		return
	}
	o.current = true
	if o.service.TellCurrent != nil {
		o.service.TellCurrent(o.record.Current(o.assigned().spec.Cluster, now))
	}
}

// recordSurvey records that a survey has ended.
func (o *observer) recordSurvey() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.looked = time.Now()
}

// read reads all repositories at once, so that one that hangs does not delay the others. A repository that cannot be read keeps
// its last standing, with the problem.
func (o *observer) read(ctx context.Context, spec spec.Spec) {
	o.forget(spec)
	last, newest := o.board.get().Last, make([]catalog.ID, len(spec.Repositories))
	standings := make([]Standing, len(spec.Repositories))
	var reading sync.WaitGroup
	for i, r := range spec.Repositories {
		reading.Go(func() {
			standing, id, err := o.service.standing(ctx, spec, r, o.memory.seen[r.Name])
			if err != nil {
				standing = o.lastStanding(r.Name)
				standing.Problem = err.Error()
			}
			standings[i], newest[i] = standing, id
		})
	}
	reading.Wait()
	o.standings = standings
	complete := !slices.ContainsFunc(standings, func(s Standing) bool { return s.Problem != "" })
	if complete && last != nil && last.ID > slices.Max(newest) {
		o.gone()
	}
}

// forget drops the memory if it may no longer be valid.
func (o *observer) forget(spec spec.Spec) {
	now := time.Now()
	if o.memory.digest == spec.Digest && now.Sub(o.memory.began) < observeAnew {
		return
	}
	o.memory = memory{spec.Digest, now, map[string]*backups.Seen{}}
	for _, r := range spec.Repositories {
		o.memory.seen[r.Name] = &backups.Seen{}
	}
}

// lastStanding returns the standing of the last survey.
func (o *observer) lastStanding(repository string) Standing {
	for _, s := range o.standings {
		if s.Repository == repository {
			return s
		}
	}
	return Standing{Repository: repository}
}

// standing returns the standing of a cluster in one repository. It reads only documents that are not in seen, and updates seen.
// newest is the newest listed backup, damaged or not.
func (s *Service) standing(
	ctx context.Context, spec spec.Spec, in spec.Repository, seen *backups.Seen,
) (standing Standing, newest catalog.ID, err error) {
	c, err := repository.OpenWith(s.bucket(in), spec.Cluster, in.Policy)
	if err != nil {
		return Standing{}, "", err
	}
	c.Remembering(s.headersOf(spec, in))
	read := condition.SurveyOptions(!spec.Drill.Schedule.None(), time.Now())
	read.Seen = *seen
	survey, err := c.Survey(ctx, read)
	if err != nil {
		return Standing{}, "", err
	}
	*seen = survey.Seen
	for _, b := range survey.Backups {
		newest = max(newest, b.ID)
	}
	for _, d := range slices.Concat(survey.Damaged, survey.Untrusted) {
		newest = max(newest, d.ID)
	}
	return condition.NewStanding(in.Name, survey, spec.Schedule.Next, time.Now()), newest, nil
}

// publish computes the conditions, publishes them, and reports changes.
func (o *observer) publish() {
	now := time.Now()
	conditions, changes := o.record.Update(condition.Judge(o.facts(now), now), now)
	standings := append([]Standing{}, o.standings...)
	o.board.set(func(s *Status) { s.Standings, s.Conditions = standings, conditions })
	o.report(changes)
}

// report reports changes of conditions, and passes them to Tell.
func (o *observer) report(changes []condition.Change) {
	for _, c := range changes {
		e := storage.Event{Time: c.Time, Stage: "condition", Level: storage.Warning, Cluster: c.Cluster, Object: c.Repository}
		e.Message = fmt.Sprintf("%s (%s): %s; %s", c.Name, c.Severity, c.Message, c.Cure)
		if c.State == condition.Ends {
			e.Level, e.Message = storage.Note, fmt.Sprintf("%s has ended; it began at %s", c.Name, c.Since.UTC().Format(time.RFC3339))
		}
		o.service.Report.Say(e)
		if o.service.Tell != nil {
			o.service.Tell(c)
		}
	}
}

// Healthy returns nil if every cluster is surveyed in time and has no critical condition. Otherwise
// the heartbeat stops, or reports a failure.
func (s *Service) Healthy(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workers {
		err := w.observer.healthy(now)
		if err != nil {
			return err
		}
	}
	for _, f := range s.faulty {
		err := f.observer.healthy(now)
		if err != nil {
			return err
		}
	}
	return nil
}

// healthy returns nil if the cluster is healthy. Conditions younger than condition.Settle do not count: they may end soon.
func (o *observer) healthy(now time.Time) error {
	o.mu.Lock()
	spec, looked := o.assignment.spec, o.looked
	o.mu.Unlock()
	if spec.Observe == 0 {
		return nil
	}
	patience := 2*spec.Observe + readTime + checkTime
	if now.Sub(looked) > patience {
		return fmt.Errorf("cluster %s: no survey for %s", spec.Cluster, patience)
	}
	for _, c := range o.board.get().Conditions {
		if c.Severity == condition.Critical && now.Sub(c.Since) >= condition.Settle {
			return fmt.Errorf("cluster %s: %s: %s", spec.Cluster, c.Name, c.Message)
		}
	}
	return nil
}
