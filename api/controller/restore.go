package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/etcd-dr/etcd-dr/api/controller/restores"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/declared"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/address"
	"github.com/etcd-dr/etcd-dr/storage/reach"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// restoreRequest bounds each request of a restore to the API server, such as one that an admission webhook delays.
const restoreRequest = 30 * time.Second

// addRestores adds the reconciler of EtcdRestores to the manager.
func (op *operator) addRestores(m ctrl.Manager, access *rest.Config) error {
	plain, err := uncached(access, m.GetScheme())
	if err != nil {
		return err
	}
	within := reach.OtherHosts
	if op.Loopback {
		within = reach.Anywhere
	}
	reconciler := &restores.Reconciler{
		Client: m.GetClient(), Uncached: plain, Group: op.group(), Image: op.JobImage, Leads: op.leader.leads, Events: m.GetEventRecorder("etcd-dr"),
		Sources: sources{client: m.GetClient(), uncached: plain, loopback: op.Loopback}, Open: op.scheduler.Open, Reach: within, Target: restores.NewTarget,
	}
	op.restores.Reconciler, op.restores.cache = reconciler, m.GetClient()
	return ctrl.NewControllerManagedBy(m).For(&v1alpha1.EtcdRestore{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: restores.AtOnce,
			CacheSyncTimeout:        math.MaxInt64, // without the definition no restore runs, but backups continue
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](soonAfter, restoreRetry),
		}).
		WatchesRawSource(source.Func(op.restoreWaker.start)).Complete(op.restores)
}

// uncached returns a client without a cache, whose requests are bounded.
func uncached(access *rest.Config, scheme *runtime.Scheme) (client.Client, error) {
	bounded := rest.CopyConfig(access)
	bounded.Timeout = restoreRequest
	return client.New(bounded, client.Options{Scheme: scheme})
}

// restoreRetry is the longest wait before the API server is asked again. It is short because members may be stopped.
const restoreRetry = 10 * time.Second

// wakeRestores queues all EtcdRestores, which only the leader carries out.
func (op *operator) wakeRestores(ctx context.Context, reader client.Reader) {
	var all v1alpha1.EtcdRestoreList
	err := reader.List(ctx, &all)
	if err != nil {
		return // the cache is not filled yet: all are queued once it is
	}
	var names []types.NamespacedName
	for _, e := range all.Items {
		names = append(names, client.ObjectKeyFromObject(&e))
	}
	op.restoreWaker.wake(names)
}

// sources reads the objects that EtcdRestores name. It implements restores.Sources.
type sources struct {
	client   client.Reader // reads EtcdBackups from a cache
	uncached client.Reader // reads Secrets
	loopback bool
}

// Settings implements restores.Sources.
func (s sources) Settings(ctx context.Context, e *v1alpha1.EtcdRestore) (restores.Settings, error) {
	var set restores.Settings
	var err error
	if e.Spec.From.EtcdBackup == nil {
		set = restores.Settings{Cluster: e.Spec.From.Cluster, Repository: *e.Spec.From.Repository}
	} else {
		set, err = s.settingsOfBackup(ctx, e.Namespace, *e.Spec.From.EtcdBackup)
	}
	if err != nil {
		return set, err
	}
	from, err := s.Repository(ctx, e.Namespace, set)
	set.Trust = from.Policy.Trusted().Keys()
	return set, err
}

// settingsOfBackup returns the settings of an EtcdBackup.
func (s sources) settingsOfBackup(ctx context.Context, namespace string, from v1alpha1.EtcdBackupName) (restores.Settings, error) {
	name := types.NamespacedName{Namespace: namespace, Name: from.Name}
	var b v1alpha1.EtcdBackup
	err := s.client.Get(ctx, name, &b)
	if apierrors.IsNotFound(err) {
		return restores.Settings{}, unusable("spec.from.etcdBackup", fmt.Errorf("there is no EtcdBackup %s in this namespace: correct the name, or set spec.from.cluster and spec.from.repository", from.Name))
	}
	if err != nil {
		return restores.Settings{}, fmt.Errorf("cannot read EtcdBackup %s: %w", name, err)
	}
	if b.Spec.Like != "" {
		return restores.Settings{}, unusable("spec.from.etcdBackup", fmt.Errorf("EtcdBackup %s takes its settings from another one: name that, %s", from.Name, b.Spec.Like))
	}
	i := slices.IndexFunc(b.Spec.Repositories, func(r v1alpha1.Repository) bool { return from.Repository == "" || r.Name == from.Repository })
	if i < 0 {
		return restores.Settings{}, unusable("spec.from.etcdBackup.repository", fmt.Errorf("EtcdBackup %s has no repository %s: correct the name", from.Name, from.Repository))
	}
	if b.Spec.Repositories[i].CredentialsSecret == nil {
		return restores.Settings{}, unusable("spec.from.etcdBackup", fmt.Errorf("the repository %s of EtcdBackup %s has no credentialsSecret, and the Jobs cannot use the operator's identity: "+
			"set spec.from.cluster and spec.from.repository, with a credentialsSecret", b.Spec.Repositories[i].Name, from.Name))
	}
	return restores.Settings{
		Cluster: clusterOf(&b), Repository: b.Spec.Repositories[i],
		Access: v1alpha1.Access{TLSSecret: b.Spec.Source.TLSSecret, AuthSecret: b.Spec.Source.AuthSecret},
	}, nil
}

// unusable returns an error that matches restores.ErrSettings.
func unusable(field string, err error) error {
	return fmt.Errorf("%w: %s: %w", restores.ErrSettings, field, err)
}

// Repository implements restores.Sources.
func (s sources) Repository(ctx context.Context, namespace string, set restores.Settings) (spec.Repository, error) {
	r := set.Repository
	d, err := s.declaration(ctx, namespace, secretNames(v1alpha1.EtcdBackupSpec{Repositories: []v1alpha1.Repository{r}}))
	if err != nil {
		return spec.Repository{}, err
	}
	built := d.from(r, set.Cluster)
	if !s.loopback {
		built.Reach = reach.OtherHosts
	}
	return built, d.err()
}

// from returns the repository r for a restore of a cluster. Limits and locks of backups do not concern it. Unlike a repository that is
// written to, it may trust keys without having one that signs.
func (d *declaration) from(r v1alpha1.Repository, cluster string) spec.Repository {
	const field = "spec.from.repository"
	set := declared.Repository{URL: r.URL}
	set.Credentials, _ = d.secret(field+".credentialsSecret", r.CredentialsSecret.Name)
	if r.CASecret != nil {
		set.CA = d.caCertificates(*r.CASecret, field+".caSecret")
	}
	if r.SignKeySecret != nil {
		set.SignKey = d.signKey(*r.SignKeySecret, field+".signKeySecret")
	}
	place, err := address.Parse(strings.ReplaceAll(r.URL, declared.Placeholder, cluster))
	switch {
	case err != nil: // BuildRepository reports it
	case place.CA != "":
		d.fault(field+".url", errors.New("the option ca names a file of the operator's own: remove it"))
	case place.Endpoint != "":
		d.reachable(field+".url", place.Endpoint)
	}
	if len(d.faults) > 0 {
		return spec.Repository{}
	}
	built, faults := declared.BuildRepository(r.Name, cluster, set)
	for _, f := range faults {
		d.fault(field+"."+cmp.Or(secretFields[strings.Join(f.Path, ".")], strings.Join(f.Path, ".")), f.Err)
	}
	if len(r.Trust) > 0 {
		built.Policy.Trust, err = sign.ParseTrust(r.Trust...)
		if err != nil {
			d.fault(field+".trust", err)
		}
	}
	return built
}

// Access implements restores.Sources.
func (s sources) Access(ctx context.Context, namespace string, a v1alpha1.Access) (cluster.Config, error) {
	d, err := s.declaration(ctx, namespace, secretNames(v1alpha1.EtcdBackupSpec{Source: &v1alpha1.Source{TLSSecret: a.TLSSecret, AuthSecret: a.AuthSecret}}))
	if err != nil {
		return cluster.Config{}, err
	}
	e := declared.Defaults().Etcd
	if a.TLSSecret != nil {
		e.PEM = d.tls("spec.access.tlsSecret", a.TLSSecret.Name)
	}
	if a.AuthSecret != nil {
		e.User, e.Password = d.user("spec.access.authSecret", *a.AuthSecret)
	}
	if !s.loopback {
		e.Reach = reach.OtherHosts
	}
	return scheduler.ClusterConfig(e), d.err()
}

// declaration returns a declaration with the Secrets of these names.
func (s sources) declaration(ctx context.Context, namespace string, names []string) (*declaration, error) {
	read, err := readSecrets(ctx, s.uncached, namespace, names)
	return &declaration{secrets: read, loopback: s.loopback}, err
}

// err returns the faults; nil if there are none.
func (d *declaration) err() error {
	if len(d.faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", restores.ErrSettings, errors.Join(d.faults...))
}
