package restores

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/inplace"
	"github.com/etcd-dr/etcd-dr/restore/handoff/statefulset"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// run is one reconciliation of an EtcdRestore.
type run struct {
	*Reconciler
	before   *v1alpha1.EtcdRestore // as it was read
	restore  *v1alpha1.EtcdRestore
	id       string
	settings Settings
	known    int64 // the newest revision known to an earlier plan; 0: there is none
}

// manage returns the target. backup holds the members of the backup; nil: they are not known yet.
func (r *run) manage(backup []plan.Member) inplace.Target { return r.target(backup) }

func (r *run) target(backup []plan.Member) Target {
	return r.Target(r.optionsOf(r.restore, r.id, r.settings, backup))
}

// by returns the author of the pin and the suspension.
func (r *run) by() string {
	e := r.restore
	return inplace.Author(fmt.Sprintf("EtcdRestore %s/%s", e.Namespace, e.Name), r.id, fmt.Sprintf("StatefulSet %s/%s", e.Namespace, e.Spec.Into.StatefulSet.Name))
}

// load returns the record of the restore. It may have the id of an earlier EtcdRestore of this origin, which no longer exists: then that
// becomes the id of r. The error matches fault.NotFound if there is none.
func (r *run) load(ctx context.Context) (handoff.Record, error) {
	target := r.target(nil)
	record, err := target.Load(ctx, r.id)
	if !errors.Is(err, fault.NotFound) {
		return record, err
	}
	record, err = target.Find(ctx, r.ownerOf(r.restore))
	if err == nil {
		r.id = record.ID
	}
	return record, err
}

// encode returns the settings for the record. They include the owner and an order, so that dr restore --undo can end the restore after its
// EtcdRestore is gone.
func (r *run) encode() string {
	o := r.optionsOf(r.restore, r.id, r.settings, nil)
	text, err := json.Marshal(struct {
		Settings
		Order statefulset.Order `json:"order"`
		Owner statefulset.Owner `json:"etcdRestore"`
	}{
		r.settings,
		statefulset.Order{Into: o.Into, URL: o.Jobs.Repository.URL, Repository: o.Jobs.Repository, Image: o.Jobs.Image, Memory: o.Jobs.Memory,
			Clone: r.restore.Spec.Clone, By: r.by()},
		r.ownerOf(r.restore),
	})
	if err != nil {
		panic(err) // only texts, numbers and quantities
	}
	return string(text)
}

// inPlace returns the restore with r's settings. The error names the field at fault.
func (r *run) inPlace() (*inplace.Restore, error) {
	e := r.restore
	point, err := targetOf(e.Spec, time.Now().UTC())
	return &inplace.Restore{
		ID: r.id, By: r.by(), Name: e.Spec.Into.StatefulSet.Name,
		Confirmed: e.Spec.Confirm != "", DryRun: e.Spec.DryRun, Clone: e.Spec.Clone, Abandoned: e.DeletionTimestamp != nil,
		Reach: r.Reach, Point: point, Layout: layoutOf(e, r.id), Known: r.known,
		Manage: r.manage, Open: r.open, Access: r.access,
		Warn: func(w inplace.Warning, text string) { r.record(e, event{corev1.EventTypeWarning, string(w), text}) },
	}, err
}

// begin handles an EtcdRestore without a record. It starts a new restore; if the status shows that one had begun, it makes the record again;
// and it cleans up after one that has ended or is being deleted.
func (r *run) begin(ctx context.Context) (time.Duration, error) {
	e := r.restore
	phase := handoff.Phase(e.Status.Phase)
	switch {
	case hasEnded(e):
		return r.forget(ctx)
	case phase != "" && phase != handoff.Pending && !e.Spec.DryRun:
		return r.rebuild(ctx)
	case e.DeletionTimestamp != nil:
		return r.abandon(ctx)
	}
	why, err := r.check(ctx)
	if err != nil {
		return 0, err
	}
	if why != "" {
		describePending(e, why)
		return faultAfter, r.write(ctx, r.before, e)
	}
	w, err := ordersOf(e, "")
	if err != nil {
		return 0, err
	}
	record := handoff.New(r.id, w, time.Now())
	record.Settings = r.encode()
	if w.DryRun {
		return r.rehearse(ctx, record, w)
	}
	return r.step(ctx, handoff.Record{}, record)
}

// abandon releases what a restore without a record may have claimed: an operator can be killed between the claim and the first record. If the
// operator lacks the rights, nothing was claimed.
func (r *run) abandon(ctx context.Context) (time.Duration, error) {
	p, err := r.manage(nil).Lift(ctx, handoff.Record{ID: r.id})
	if err != nil && !errors.Is(err, handoff.ErrForbidden) {
		return 0, err
	}
	if err == nil && !p.Done {
		return soonAfter, nil
	}
	return 0, r.hold(ctx, r.restore, false)
}

// rehearse carries out a dry run, whose record is not stored.
func (r *run) rehearse(ctx context.Context, record handoff.Record, w handoff.Orders) (time.Duration, error) {
	restore, err := r.inPlace()
	if err != nil {
		return 0, err
	}
	one := restore.Steps()
	for record.Step != handoff.None {
		after := one.Act(ctx, record, w, time.Now)
		if after.Step == record.Step {
			record = after
			break
		}
		record = after
	}
	r.restore.Status.Cluster = r.settings.Cluster
	describe(r.restore, record)
	return inplace.Pause(record, record), r.write(ctx, r.before, r.restore)
}

// check returns why the settings cannot be used; "" if they can. It returns an error if the API server does not answer.
func (r *run) check(ctx context.Context) (string, error) {
	_, err := ordersOf(r.restore, "")
	if err != nil {
		return err.Error(), nil
	}
	_, err = targetOf(r.restore.Spec, time.Now())
	if err != nil {
		return err.Error(), nil
	}
	r.settings, err = r.Sources.Settings(ctx, r.restore)
	if err == nil {
		_, err = r.Sources.Repository(ctx, r.restore.Namespace, r.settings)
	}
	if err == nil {
		_, err = r.Sources.Access(ctx, r.restore.Namespace, r.settings.accessTo(r.restore))
	}
	if errors.Is(err, ErrSettings) {
		return err.Error(), nil
	}
	return "", err
}

// resume continues a restore with the settings in its record.
func (r *run) resume(ctx context.Context, record handoff.Record) (time.Duration, error) {
	err := json.Unmarshal([]byte(record.Settings), &r.settings)
	if err != nil {
		return 0, fmt.Errorf("%w: the record of restore %s has no settings: %w", fault.Damaged, r.id, err)
	}
	if record.Plan != nil {
		r.known = record.Plan.Bump.Known // a later plan must not continue below it
	}
	orphan, err := isOrphan(ctx, r.manage(nil), record)
	switch {
	case err != nil:
		return 0, err
	case orphan:
		return r.orphan(ctx, record, record)
	case r.restore.DeletionTimestamp != nil && record.Phase == handoff.Verifying:
		return r.leaveRestored(ctx, record, record)
	}
	adopted := record
	adopted.Settings = r.encode()
	return r.step(ctx, record, adopted)
}

// step carries out the due step of record, stores the result in place of stored, and writes it into the status. stored is zero if nothing
// is stored. The finalizer is set before anything is claimed, and the final status is written before the record is removed.
func (r *run) step(ctx context.Context, stored, record handoff.Record) (time.Duration, error) {
	if !record.Phase.HasEnded() {
		err := r.hold(ctx, r.restore, true)
		if err != nil {
			return 0, err
		}
	}
	w, err := ordersOf(r.restore, record.Phase)
	if err != nil {
		return 0, err
	}
	restore, err := r.inPlace()
	if err != nil {
		return 0, err
	}
	after := inplace.Act(ctx, restore.Steps(), record, w)
	if !r.Leads() {
		return 0, nil // not any more: the next leader repeats the step
	}
	r.restore.Status.Cluster = r.settings.Cluster
	describe(r.restore, after)
	return inplace.Pause(record, after), r.store(ctx, stored, after)
}

// store stores the record after a step, writes the status, and removes the finalizer once the restore has ended.
func (r *run) store(ctx context.Context, stored, after handoff.Record) error {
	save := func() error {
		if reflect.DeepEqual(stored, after) {
			return nil
		}
		return r.manage(nil).Save(ctx, stored, after)
	}
	write := func() error { return r.write(ctx, r.before, r.restore) }
	finalizer := func() error { return r.hold(ctx, r.restore, !after.Phase.HasEnded()) }
	order := []func() error{save, write, finalizer}
	if after.Step == handoff.None {
		order = []func() error{write, save, finalizer}
	}
	for _, do := range order {
		err := do()
		if err != nil {
			return err
		}
	}
	return nil
}

// leaveRestored ends a restore whose EtcdRestore is deleted while the restored members are being verified. The members stay as they are.
func (r *run) leaveRestored(ctx context.Context, stored, record handoff.Record) (time.Duration, error) {
	record.End = handoff.Succeeded
	return r.letGo(ctx, stored, record, "the EtcdRestore is deleted, and the restored members stay")
}

// letGo ends a restore whose EtcdRestore is being deleted, and leaves the members and their disks as they are. stored is the record;
// zero: there is none. lifted is the record with the end. While the restore waits for that, the status has the reason, after why.
func (r *run) letGo(ctx context.Context, stored, lifted handoff.Record, why string) (time.Duration, error) {
	restore, err := r.inPlace()
	if err != nil {
		return 0, err
	}
	p, err := restore.Steps().Claim.Lift(ctx, lifted)
	if err != nil {
		return 0, err
	}
	if !p.Done {
		return soonAfter, r.explain(ctx, r.before.DeepCopy(), why+"; "+p.Waiting)
	}
	lifted.Step = handoff.None
	if stored.ID != "" {
		err = r.manage(nil).Save(ctx, stored, lifted)
	}
	if err != nil {
		return 0, err
	}
	return 0, r.hold(ctx, r.restore, false)
}

// access returns the configuration for connections to the members.
func (r *run) access(ctx context.Context) (cluster.Config, error) {
	return r.Sources.Access(ctx, r.restore.Namespace, r.settings.accessTo(r.restore))
}

// open opens the repository.
func (r *run) open(ctx context.Context) (*repository.Cluster, error) {
	from, err := r.Sources.Repository(ctx, r.restore.Namespace, r.settings)
	if err != nil {
		return nil, err
	}
	bucket, err := r.Open(ctx, from)
	if err != nil {
		return nil, fmt.Errorf("repository %s: %w", from.Name, err)
	}
	return repository.OpenWith(bucket, r.settings.Cluster, from.Policy)
}
