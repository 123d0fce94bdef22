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
	observeGather = 2 * time.Second  // a backup's end is followed by that of pruning: one look sees both
	observeRest   = 15 * time.Second // at least between two looks at a cluster, whatever happens
	observeAnew   = 6 * time.Hour    // all is read anew: what rots on a disk is not listed as changed
	readTime      = 2 * time.Minute  // for all repositories of a cluster
	checkTime     = time.Minute      // for a cluster itself
)

// observer looks at how one cluster stands: in its repositories, and for itself. It runs beside the worker, so that no backup
// ever waits for it. All but order, looked and nudges is its own goroutine's.
type observer struct {
	service *Service
	board   *board
	nudges  chan struct{}
	gone    func() // is called when the newest backup that the worker remembers is nowhere

	mu     sync.Mutex
	order  order
	looked time.Time // when the last look ended, or the first was begun to be waited for

	since     time.Time // when it began to look
	memory    memory
	standings []Standing
	lines     []check.Line
	record    condition.Record
	known     time.Time // when it first knew all there is to know of the cluster
	current   bool      // what holds was told
}

// memory is what was read of a cluster, which need not be read again while its Spec is the same: another may trust other keys.
type memory struct {
	digest string
	began  time.Time
	seen   map[string]*backups.Seen // by repository, one for each of the Spec
}

func newObserver(s *Service, b *board, o order) *observer {
	return &observer{service: s, board: b, nudges: make(chan struct{}, 1), order: o, looked: time.Now()}
}

// nudge makes a look come soon: something has happened to the cluster.
func (o *observer) nudge() {
	select {
	case o.nudges <- struct{}{}:
	default: // it comes already
	}
}

// give continues with what is ordered.
func (o *observer) give(next order) {
	o.mu.Lock()
	changed := next.spec.Digest != o.order.spec.Digest || next.fault != o.order.fault
	o.order = next
	o.mu.Unlock()
	if changed {
		o.nudge()
	}
}

// gather takes the nudge that the next look makes superfluous.
func (o *observer) gather() {
	select {
	case <-o.nudges:
	default:
	}
}

func (o *observer) ordered() order {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.order
}

// run looks again and again until ctx ends. If that is because nobody looks after the cluster any more, service goes on.
func (o *observer) run(ctx, service context.Context) {
	o.since = time.Now()
	wait := time.Second + spec.Spread(min(o.ordered().spec.Observe, time.Minute), o.ordered().spec.Cluster) // those that began together do not look together
	for rest(ctx, o.nudges, wait) == nil {
		if rest(ctx, nil, observeGather) != nil {
			break
		}
		o.gather()
		ordered := o.ordered()
		spec := ordered.spec
		if spec.Observe == 0 {
			o.letGo()
			wait = 0
			continue
		}
		o.look(ctx, spec, ordered.lane)
		if rest(ctx, nil, min(observeRest, spec.Observe)) != nil {
			break
		}
		if wait = spec.Observe; o.record.Unsettled() || !o.known.IsZero() && !o.current {
			wait = min(wait, condition.Settle)
		}
	}
	if service.Err() == nil {
		o.tell(o.record.Close(time.Now()))
	}
}

// letGo forgets all that was seen: what nobody looks at any more is not known to be still so.
func (o *observer) letGo() {
	o.tell(o.record.Close(time.Now()))
	o.standings, o.lines, o.memory = nil, nil, memory{}
	o.board.set(func(s *Status) { s.Standings, s.Conditions = []Standing{}, []condition.Condition{} })
}

// rest waits for a nudge, or that long if it is above zero.
func rest(ctx context.Context, nudges <-chan struct{}, wait time.Duration) error {
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

// look says twice what it has seen: how a repository stands must not wait for a cluster that does not answer.
func (o *observer) look(ctx context.Context, spec spec.Spec, lane *lane) {
	if len(spec.Repositories) == 0 {
		o.judge()
		o.lookedNow()
		return
	}
	if lane.reads.take(ctx, readTime, func(ctx context.Context) { o.read(ctx, spec) }) != nil {
		return
	}
	o.judge()
	if o.service.Check != nil {
		checks := turns{o.service.checks}
		if checks.take(ctx, checkTime, func(ctx context.Context) { o.lines = o.service.Check(ctx, spec) }) != nil {
			return
		}
		o.judge()
	}
	o.tellCurrent()
	o.lookedNow()
}

// tellCurrent tells once what holds, when all repositories have answered and what was found then has settled. While another service
// works it knows more of its jobs.
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
		o.service.TellCurrent(o.record.Current(o.ordered().spec.Cluster, now))
	}
}

func (o *observer) lookedNow() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.looked = time.Now()
}

// read looks at all repositories at once: one that hangs takes no time from the others. One that does not tell stands as it did
// before.
func (o *observer) read(ctx context.Context, spec spec.Spec) {
	o.forget(spec)
	last, newest := o.board.get().Last, make([]catalog.ID, len(spec.Repositories))
	standings := make([]Standing, len(spec.Repositories))
	var reading sync.WaitGroup
	for i, r := range spec.Repositories {
		reading.Go(func() {
			standing, id, err := o.service.stand(ctx, spec, r, o.memory.seen[r.Name])
			if err != nil {
				standing = o.before(r.Name)
				standing.Problem = err.Error()
			}
			standings[i], newest[i] = standing, id
		})
	}
	reading.Wait()
	o.standings = standings
	told := !slices.ContainsFunc(standings, func(s Standing) bool { return s.Problem != "" })
	if told && last != nil && last.ID > slices.Max(newest) {
		o.gone()
	}
}

// forget drops what was read before if it need not hold any more.
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

func (o *observer) before(repository string) Standing {
	for _, s := range o.standings {
		if s.Repository == repository {
			return s
		}
	}
	return Standing{Repository: repository}
}

// stand reads how a cluster stands in one repository, but for what was seen there, and renews that. newest is the newest
// backup that is listed, whatever is wrong with it.
func (s *Service) stand(
	ctx context.Context, spec spec.Spec, in spec.Repository, seen *backups.Seen,
) (standing Standing, newest catalog.ID, err error) {
	c, err := repository.OpenWith(s.bucket(in), spec.Cluster, in.Policy)
	if err != nil {
		return Standing{}, "", err
	}
	c.Remembering(s.headersOf(spec, in))
	read := condition.Survey(!spec.Drill.Schedule.None(), time.Now())
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

// judge publishes what is known, and tells what has changed.
func (o *observer) judge() {
	now := time.Now()
	conditions, changes := o.record.Update(condition.Judge(o.facts(now), now), now)
	standings := append([]Standing{}, o.standings...)
	o.board.set(func(s *Status) { s.Standings, s.Conditions = standings, conditions })
	o.tell(changes)
}

// tell puts changes into the logs, and hands them on.
func (o *observer) tell(changes []condition.Change) {
	for _, c := range changes {
		e := storage.Event{Time: c.Time, Stage: "condition", Level: storage.Warning, Cluster: c.Cluster, Object: c.Repository}
		e.Message = fmt.Sprintf("%s (%s): %s; %s", c.Name, c.Severity, c.Message, c.Cure)
		if c.State == condition.Ends {
			e.Level, e.Message = storage.Note, fmt.Sprintf("%s has ended, since %s", c.Name, c.Since.UTC().Format(time.RFC3339))
		}
		o.service.Report.Say(e)
		if o.service.Tell != nil {
			o.service.Tell(c)
		}
	}
}

// Healthy is nil if every cluster is looked at as often as it should be, and nothing critical holds of any: what a dead
// man's switch waits for.
func (s *Service) Healthy(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workers {
		if err := w.observer.healthy(now); err != nil {
			return err
		}
	}
	for _, f := range s.faulty {
		if err := f.observer.healthy(now); err != nil {
			return err
		}
	}
	return nil
}

// healthy: what began less than condition.Settle ago may be over before anybody has read it.
func (o *observer) healthy(now time.Time) error {
	o.mu.Lock()
	spec, looked := o.order.spec, o.looked
	o.mu.Unlock()
	if spec.Observe == 0 {
		return nil
	}
	if patience := 2*spec.Observe + readTime + checkTime; now.Sub(looked) > patience {
		return fmt.Errorf("cluster %s was not looked at for %s", spec.Cluster, patience)
	}
	for _, c := range o.board.get().Conditions {
		if c.Severity == condition.Critical && now.Sub(c.Since) >= condition.Settle {
			return fmt.Errorf("cluster %s: %s: %s", spec.Cluster, c.Name, c.Message)
		}
	}
	return nil
}
