package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// takeOnce brings the one backup of b a step further. The phase is written ahead of the request, and the backup's label contains b's
// UID: an operator that finds the phase, and does not know of the backup, looks for it in the repositories before it requests another.
func (r *reconciler) takeOnce(ctx context.Context, b *v1alpha1.EtcdBackup, s scheduler.Status) (time.Duration, error) {
	stands, outcome := attemptOf(s, reasonOf(b))
	switch {
	case !r.leads():
		return settingsAfter, nil
	case b.Status.Phase == "":
		b.Status.Phase = v1alpha1.PhasePending
		return soonAfter, nil
	case stands == waiting:
		b.Status.Message = "waits for its turn: the service runs another backup, or as many as it may at a time"
		return statusAfter, nil
	case stands == running:
		b.Status.Phase, b.Status.Message = v1alpha1.PhaseRunning, ""
		return statusAfter, nil
	case stands == succeeded, stands == failed:
		end(b, stands, outcome)
		return soonAfter, nil
	}
	taken, err := r.find(ctx, b, s.Cluster)
	switch {
	case err != nil:
		b.Status.Message = err.Error()
		return statusAfter, nil
	case taken != nil:
		end(b, succeeded, scheduler.Outcome{Backup: catalog.ID(taken.ID)})
		b.Status.Last = taken
		return soonAfter, nil
	}
	if !r.leads() { // not any more: the search took its time
		return settingsAfter, nil
	}
	b.Status.Message = ""
	err = r.service.TriggerOnce(s.Cluster, reasonOf(b), b.CreationTimestamp.Time)
	if err != nil {
		b.Status.Message = err.Error()
	}
	return statusAfter, nil
}

// reasonOf returns the reason of b's one backup, which becomes its label in the repositories.
func reasonOf(b *v1alpha1.EtcdBackup) string {
	return fmt.Sprintf("EtcdBackup %s/%s, UID %s", b.Namespace, b.Name, b.UID)
}

// findTime bounds find: a store that does not answer must not keep the other EtcdBackups waiting.
const findTime = 20 * time.Second

// find returns the backup in the cluster's repositories that carries b's UID; nil if there is none. It fails if no repository answers.
func (r *reconciler) find(ctx context.Context, b *v1alpha1.EtcdBackup, cluster string) (*v1alpha1.BackupStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	settings, err := r.service.Spec(cluster)
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, in := range settings.Repositories {
		found, err := r.findIn(ctx, b, cluster, in.Name)
		if found != nil {
			return found, nil
		}
		failures = append(failures, err)
	}
	if slices.Contains(failures, nil) {
		return nil, nil
	}
	return nil, fmt.Errorf("cannot find out whether the backup was taken: %w", errors.Join(failures...))
}

func (r *reconciler) findIn(ctx context.Context, b *v1alpha1.EtcdBackup, cluster, repository string) (*v1alpha1.BackupStatus, error) {
	_, store, err := r.service.OpenRepository(ctx, cluster, repository)
	if err != nil {
		return nil, err
	}
	taken, found, err := scheduler.Requested(ctx, store.Cluster, reasonOf(b), b.CreationTimestamp.Time)
	if err != nil {
		return nil, fmt.Errorf("repository %s: %w", repository, err)
	}
	if !found {
		return nil, nil
	}
	return &v1alpha1.BackupStatus{
		ID: string(taken.ID), Revision: taken.Revision, Time: seconds(taken.Started), Size: taken.Plain.Size, Proof: string(catalog.Stored),
	}, nil
}
