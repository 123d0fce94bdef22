package statefulset

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Do carries out a task with a Job for each member, which finds its name, the member's volumes and the plan in r. A Job that exists is not
// created again, unless it ended without a result. Jobs of other tasks are ended first: one that starts late would change a disk on which
// the restore has gone another way. A disk that no longer exists has nothing to remove or to put back: there such a task is done. To block a
// lost disk, Do creates a new claim.
func (m *Manager) Do(ctx context.Context, r handoff.Record, t handoff.Task) ([]handoff.Progress, error) {
	all := slices.Repeat([]handoff.Progress{{Idle: true}}, len(r.Handoff.Members))
	one, err := m.readRun(ctx, r, t)
	if err != nil {
		return all, err
	}
	grown := m.grown(one)
	if t == handoff.DoReview && grown != "" {
		for i := range all {
			all[i].Waiting = grown
		}
		return all, nil
	}
	found, err := m.readJobs(ctx)
	if err != nil {
		return all, err
	}
	for i := range all {
		one.index = int32(i)
		all[i].Idle = one.isIdle(found.ofMember(one), time.Now()) // before Jobs are deleted
	}
	p, err := m.prepare(ctx, one)
	if err == nil && p.Done {
		reached := found.of(func(pod string) bool { return !one.spares(pod) })
		_, err = m.carryOut(ctx, reached.end(turn(r, t), time.Now()))
	}
	if err != nil || !p.Done {
		for i := range all {
			all[i].Waiting = p.Waiting
		}
		return all, err
	}
	for i := range all {
		one.index = int32(i)
		p, failure := m.doOne(ctx, one, found)
		p.Idle = all[i].Idle
		all[i], err = p, cmp.Or(err, failure)
	}
	return all, err
}

// grown returns why the old data of the cluster cannot be put back: it has more members now. It returns "" if it has not.
func (m *Manager) grown(r run) string {
	if replicasOf(r.set) <= r.objects.count {
		return ""
	}
	remedy := "remove the other members from the cluster, and scale it"
	if yields(r.set) { // its operator removes them
		remedy = "set its size"
	}
	return fmt.Sprintf("%s has %d replicas, and the old data is that of %d members: %s to %d",
		r.sizedBy(), replicasOf(r.set), r.objects.count, remedy, r.objects.count)
}

// doOne takes the next step in the task on the disk of one member. No other member waits for it.
func (m *Manager) doOne(ctx context.Context, r run, found jobs) (handoff.Progress, error) {
	mine := found.ofMember(r)
	if r.spares(podName(r.set, r.index)) {
		return m.spare(ctx, r, mine)
	}
	places, err := r.places()
	if err != nil {
		return handoff.Progress{}, err
	}
	if r.task == handoff.DoStage || r.task == handoff.DoBlock {
		p, err := m.freeClaims(ctx, r, places)
		if err != nil || !p.Done {
			return p, err
		}
	}
	gone, left := r.gone(places), mine.end(turn(r.record, r.task), time.Now())
	switch {
	case r.task == handoff.DoBlock && (gone != "" || !r.isLost() || r.isClosed(places)):
		return r.beforeBlock(places, gone, left.waiting), nil
	case gone != "" && r.task != handoff.DoStage: // which has just created it
		return r.without(gone)
	case r.isClosed(places) && bearsLoss(r.task):
		return handoff.Progress{Done: true, Gone: true}, nil
	}
	why := cmp.Or(left.waiting, r.occupied(places))
	if why != "" {
		return handoff.Progress{Waiting: why}, nil
	}
	return m.move(ctx, r, r.next(found, time.Now()))
}

// freeClaims deletes the ended Jobs of a member, also those of earlier restores, if one of its claims is being deleted: Kubernetes removes a
// claim only when no pod uses it, and an ended pod counts. The Jobs of an untouched member stay until the record no longer has it in
// Untouched: isIdle needs them.
func (m *Manager) freeClaims(ctx context.Context, r run, places []place) (handoff.Progress, error) {
	i := slices.IndexFunc(places, func(p place) bool {
		claim := r.claims[p.claim()]
		return claim != nil && claim.DeletionTimestamp != nil
	})
	if i < 0 {
		return handoff.Progress{Done: true}, nil
	}
	var all batchv1.JobList
	err := m.client.List(ctx, &all, client.InNamespace(m.Namespace), client.MatchingLabels{nameLabel: jobName, setLabel: m.Name, podLabel: podName(r.set, r.index)})
	if err != nil {
		return handoff.Progress{}, apiError(err, "list the Jobs of %s", m)
	}
	return m.carryOut(ctx, r.endedJobs(all.Items, places[i].claim()))
}

// endedJobs returns the step that deletes those of a member's Jobs that have ended, and have a claim that is being deleted.
func (r run) endedJobs(all []batchv1.Job, claim string) (s step) {
	isUntouched := slices.Contains(r.record.Untouched, r.record.Handoff.Members[r.index].Name)
	for i, job := range all {
		if kubejob.Ended(&all[i]) == nil {
			continue
		}
		s.waiting = fmt.Sprintf("claim %s/%s is being deleted: Job %s, which has ended, is removed", r.Namespace, claim, job.Name)
		if !isUntouched || job.Labels[restoreLabel] != r.ID {
			s.deletes = append(s.deletes, &all[i])
		}
	}
	return s
}

// readRun returns the run of a task for the first member.
func (m *Manager) readRun(ctx context.Context, r handoff.Record, t handoff.Task) (run, error) {
	set, err := m.readSet(ctx)
	if err != nil {
		return run{}, err
	}
	o, err := m.readObjects(ctx, set, int32(len(r.Handoff.Members)))
	if err == nil {
		err = m.readVariables(ctx, &o)
	}
	if err != nil {
		return run{}, err
	}
	c, finding := o.etcdContainer(m.Into.Container)
	if finding != nil {
		return run{}, fmt.Errorf("%w: %s: restore with the pod template that was inspected", fault.Refused, finding)
	}
	was, err := decodeSaved(r.Handoff.Saved)
	if err != nil {
		return run{}, err
	}
	u, err := userOf(set, c, was.User)
	return run{Manager: m, objects: o, container: c, user: u, record: r, task: t}, err
}

// move carries out a move.
func (m *Manager) move(ctx context.Context, r run, next move) (handoff.Progress, error) {
	for _, job := range next.remove {
		err := m.delete(ctx, &job)
		if err != nil {
			return next.Progress, err
		}
	}
	if next.closes != nil {
		_, err := m.carryOut(ctx, step{patches: []patch{*next.closes}})
		return next.Progress, err
	}
	if next.attempt == 0 || next.err != nil {
		return next.Progress, next.err
	}
	r.attempt, r.silent = next.attempt, next.silent
	owner, err := m.owner(ctx)
	if err != nil {
		return next.Progress, err
	}
	job, err := r.job(owner)
	if err != nil {
		return next.Progress, err
	}
	err = m.client.Create(ctx, job)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return next.Progress, apiError(err, "create %s", describe(job))
	}
	return next.Progress, nil
}

// prepare creates the missing claims, if the task is to stage or to block, and the plan's ConfigMap, if it is to stage.
func (m *Manager) prepare(ctx context.Context, r run) (handoff.Progress, error) {
	isStage := r.reads() && r.record.Plan != nil
	if !isStage && r.task != handoff.DoBlock {
		return handoff.Progress{Done: true}, nil
	}
	claims, err := r.newClaims()
	if err != nil {
		return handoff.Progress{}, err
	}
	if !isStage {
		return m.carryOut(ctx, step{creates: claims})
	}
	owner, err := m.owner(ctx)
	if err != nil {
		return handoff.Progress{}, err
	}
	planned, err := r.planMap(owner)
	if err != nil {
		return handoff.Progress{}, err
	}
	return m.carryOut(ctx, step{creates: append(claims, planned)})
}

// newClaims returns the claims to create: to block, those of lost disks. To stage, it refuses claims on which the new data does not fit even
// alone. The Jobs compare the free space.
func (r run) newClaims() (missing []client.Object, err error) {
	var members []viewed
	for i := range r.record.Handoff.Members {
		r.index = int32(i)
		if r.task == handoff.DoBlock && !r.isLost() {
			continue
		}
		places, err := r.places()
		if err == nil && r.reads() {
			err = r.checkSizes(places)
		}
		if err != nil {
			return nil, err
		}
		members = append(members, viewed{places: places})
	}
	for _, claim := range missingClaims(r.objects, members) {
		missing = append(missing, claim)
	}
	return missing, nil
}

// checkSizes refuses claims that are smaller than the new data of one member, or of all members if they share the claim. The first place is that
// of the data dir, the next that of the WAL dir if there is one.
func (r run) checkSizes(places []place) error {
	member := r.record.Handoff.Members[r.index]
	placed, err := r.record.Plan.Place(plan.Into{Name: member.Name, DataDir: member.DataDir, WALDir: member.WALDir})
	if err != nil {
		return err
	}
	data, wal := restore.Need(placed)
	if places[0].claim() != "" && places[0].template == nil { // all members share it
		data, wal = data*int64(r.objects.count), wal*int64(r.objects.count)
	}
	err = r.checkSize(places[0], data)
	if err != nil || member.WALDir == "" {
		return err
	}
	return r.checkSize(places[1], wal)
}

func (r run) checkSize(p place, need int64) error {
	claim := r.claims[p.claim()]
	if claim == nil {
		return nil
	}
	size := claim.Status.Capacity[corev1.ResourceStorage]
	if size.IsZero() || size.Value() >= need {
		return nil
	}
	return fmt.Errorf("%w: claim %s/%s has %d MiB, and the restore needs %d MiB next to the old data: make it larger",
		fault.Refused, r.Namespace, claim.Name, size.Value()>>20, need>>20+1)
}

// planName returns the name of the plan's ConfigMap. Restores share no plan: its owner ends with its restore.
func (r run) planName() string {
	return strings.Join([]string{"etcd-dr-plan", r.ID, r.record.Plan.ID}, ".")
}

// planMap returns the ConfigMap with the plan. It contains no secret.
func (r run) planMap(owner metav1.OwnerReference) (*corev1.ConfigMap, error) {
	p := *r.record.Plan
	p.Into = plan.Into{} // each Job adds its own
	text, err := p.Encode()
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: r.planName(), OwnerReferences: []metav1.OwnerReference{owner},
			Labels: map[string]string{nameLabel: jobName, setLabel: r.Name, restoreLabel: r.ID},
		},
		Immutable: new(true), Data: map[string]string{planFile: string(text)},
	}, err
}
