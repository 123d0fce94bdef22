package restores

import (
	"context"

	"github.com/etcd-dr/etcd-dr/api/controller/mounted"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/inplace"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
	"github.com/etcd-dr/etcd-dr/restore/handoff/statefulset"
	"github.com/etcd-dr/etcd-dr/restore/plan"
)

// Target is the StatefulSet of a restore.
type Target interface {
	inplace.Target
	// Find returns the record of the restore that an EtcdRestore has begun. The error matches fault.NotFound if there is none.
	Find(ctx context.Context, o statefulset.Owner) (handoff.Record, error)
}

// optionsOf returns the description of the StatefulSet that e names, for a restore with an id and the settings s. backup are the members of
// the backup; nil: they are not known yet. It is pure.
func (r *Reconciler) optionsOf(e *v1alpha1.EtcdRestore, id string, s Settings, backup []plan.Member) statefulset.Options {
	o := statefulset.Options{
		Client: r.Uncached, Namespace: e.Namespace, Name: e.Spec.Into.StatefulSet.Name, ID: id, Origin: originOf(e), Backup: backup,
		Into: statefulset.Into{Container: e.Spec.Into.Container, DataDir: e.Spec.Into.DataDir, WALDir: e.Spec.Into.WALDir},
		Jobs: statefulset.Jobs{Image: r.Image, Repository: repositoryOf(e, s)},
	}
	for _, m := range e.Spec.Into.Members {
		o.Into.Members = append(o.Into.Members, plan.Member{Name: m.Name, PeerURLs: m.PeerURLs})
	}
	if e.Spec.Job != nil && e.Spec.Job.Memory != nil {
		o.Jobs.Memory = e.Spec.Job.Memory.Value()
	}
	return o
}

// repositoryOf returns the repository as the Jobs open it.
func repositoryOf(e *v1alpha1.EtcdRestore, s Settings) kubejob.Repository {
	k := mounted.Repository(s.Repository, s.Cluster, e.Spec.IdentitySecret)
	k.Trust, k.AllowPlain = s.Trust, e.Spec.AllowPlain
	return k
}

// NewTarget returns the Manager of a StatefulSet.
func NewTarget(o statefulset.Options) Target { return statefulset.New(o) }
