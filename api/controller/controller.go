// Package controller connects the custom resources of a Kubernetes cluster with a scheduler.Service: it makes the Service's Specs from
// EtcdBackups, and writes the Service's Status into the status of the EtcdBackups.
//
// While the API server is unreachable, the Service continues with the last settings. If several operators run, each runs the Service,
// and leases in the repositories prevent two of them from doing the same job. Only the leader writes status, requests the backups that
// are taken once, and carries out EtcdRestores.
package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/etcd-dr/etcd-dr/api/controller/drill"
	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/coreos"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/page"
	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/api/service"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/jobs"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrAPIServer matches the errors of Run whose cause is the access to the API server.
var ErrAPIServer = fault.New(fault.Unreachable, "cannot work with the API server")

// Options configures Run.
type Options struct {
	Kubeconfig  string // file; "": the pod's service account gives access
	Namespace   string // whose custom resources are served; "": those of all namespaces
	Election    Election
	Concurrency int           // backups at a time
	Lease       time.Duration // how long a job's lease in a repository lasts without a renewal: then another operator takes the job over
	Loopback    bool          // allows EtcdBackups to name addresses of the operator's own host and link: see package reach
	Spool       string        // folder for logs whose store is unreachable and for backups with a limit; "": logs wait in memory, and a limit is refused
	// SpoolBackups is the number of bytes that the backups of all namespaces may take together in Spool.
	SpoolBackups int64
	// Ambient lists the URLs below which a repository without a Secret is opened with the operator's identity. {{namespace}} in a URL
	// stands for the EtcdBackup's namespace. nil: each repository needs a Secret.
	Ambient        []string
	Coreos         bool          // serves the custom resources of coreos' operator, in place of those of etcd-dr.io: see package dropin
	PlainSnapshots bool          // with Coreos: stores their backups as plain snapshots too
	JobImage       string        // image of dr for the Jobs of drills and restores; "": neither is run
	Drills         int           // how many Jobs of drills run at a time, at least 1; those that have run for more than an hour do not count
	Door           server.Door   // of the API; without addresses nothing is served
	Patience       time.Duration // how long Run waits for running jobs after ctx has ended
	Identity       jobs.Identity
}

// Run runs the operator until ctx ends and its jobs have ended. Errors match ErrAPIServer, ErrPrefix or server.ErrListen.
func Run(ctx context.Context, o Options, report storage.Report) error {
	err := checkPrefixes(o.Ambient)
	if err != nil {
		return err
	}
	access, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("%w: no access: name a kubeconfig with --kubeconfig, or run in a pod with a service account: %w", ErrAPIServer, err)
	}
	op := newOperator(o, report)
	if o.Coreos {
		err = define(ctx, access)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAPIServer, err)
	}
	manager, err := op.manager(access)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAPIServer, err)
	}
	stop, err := server.Listen(o.Door, op.server(), report)
	if err != nil {
		return err
	}
	defer stop()
	return op.run(ctx, access, manager)
}

// operator is the state of one Run.
type operator struct {
	Options
	report     storage.Report
	scheduler  *scheduler.Service
	pruner     *service.Pruner
	reconciler *reconciler
	drills     *drill.Runner
	leader     *leader
	waker      *waker
	started    time.Time

	restoreWaker *waker
	restores     *restoreLister
}

func newOperator(o Options, report storage.Report) *operator {
	op := &operator{
		Options: o, report: report, scheduler: jobs.NewService(o.Identity, backup.NewRoom(o.SpoolBackups), report), pruner: service.NewPruner(o.Identity),
		leader: &leader{}, waker: &waker{}, restoreWaker: &waker{}, restores: &restoreLister{}, started: time.Now().UTC(),
	}
	op.scheduler.Prune, op.scheduler.Patience = op.pruner.Prune, o.Patience
	op.scheduler.Changed = func(cluster string) { op.waker.wake(op.reconciler.concerned(cluster)) }
	op.reconciler = &reconciler{
		service: op.scheduler, table: newTable(), leads: op.leader.leads, loopback: o.Loopback, spools: spools{o.Spool, report}, ambient: o.Ambient,
		written: map[types.NamespacedName]pace{}, waiting: map[string]map[types.NamespacedName]struct{}{},
	}
	op.scheduler.Archive = op.reconciler.spools.tidied(op.scheduler.Archive)
	op.drills = &drill.Runner{Image: o.JobImage, EtcdBackup: op.reconciler.table.backupOf}
	op.scheduler.Drill, op.scheduler.Drills = op.drills.Drill, o.Drills
	jobs.Rename(op.scheduler, fields)
	return op
}

// DefaultSpoolBackups is the default of Options.SpoolBackups, in bytes. A single backup may take half of it, which is enough for a
// database of etcd's default quota, 2 GiB.
const DefaultSpoolBackups = 5 << 30

// DefaultDrills is the default of Options.Drills. Jobs take the memory of their own namespaces, but all download from the same stores,
// and when an operator starts, hundreds of drills may be due.
const DefaultDrills = 8

// manager returns a manager with the reconcilers of EtcdBackups and EtcdRestores. The manager serves no metrics and elects no leader: if
// it lost its lease, it would end the process and the running backups, just when the API server is in trouble.
func (op *operator) manager(access *rest.Config) (ctrl.Manager, error) {
	ctrl.SetLogger(logger(op.report))
	scheme := runtime.NewScheme()
	ours := func(s *runtime.Scheme) error { return v1alpha1.AddToSchemeAs(s, op.group()) }
	for _, add := range []func(*runtime.Scheme) error{
		ours, coreos.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, authorizationv1.AddToScheme,
	} {
		err := add(scheme)
		if err != nil {
			return nil, err
		}
	}
	options := ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.Pod{}, &batchv1.Job{}}}},
	}
	if op.Namespace != "" {
		options.Cache.DefaultNamespaces = map[string]cache.Config{op.Namespace: {}}
	}
	m, err := ctrl.NewManager(access, options)
	if err != nil {
		return nil, err
	}
	op.reconciler.client, op.reconciler.uncached, op.reconciler.events = m.GetClient(), m.GetAPIReader(), m.GetEventRecorder("etcd-dr")
	op.drills.Client = m.GetClient()
	err = m.Add(manager.RunnableFunc(op.reconciler.list)) // otherwise only a reconcile calls it: an operator without EtcdBackups would never be ready
	if err == nil {
		err = op.addRestores(m, access)
	}
	if err == nil && op.Coreos {
		err = op.addCoreos(m, access)
	}
	if err != nil {
		return nil, err
	}
	return m, ctrl.NewControllerManagedBy(m).For(&v1alpha1.EtcdBackup{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 8,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](soonAfter, settingsAfter),
		}).
		WatchesRawSource(source.Func(op.waker.start)).Complete(op.reconciler)
}

// run runs the manager, the election and the jobs until ctx ends or the manager fails.
func (op *operator) run(ctx context.Context, access *rest.Config, manager ctrl.Manager) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var background sync.WaitGroup
	defer background.Wait()
	elector, err := op.leader.elector(access, op.Election, func() {
		op.waker.wake(op.reconciler.names())
		op.wakeRestores(ctx, manager.GetClient())
	})
	if err != nil {
		return fmt.Errorf("%w: the leader election: %w", ErrAPIServer, err)
	}
	background.Go(func() { campaign(ctx, elector) })
	changes := make(chan spec.Config)
	background.Go(func() { op.feed(ctx, changes) })
	background.Go(func() { op.scheduler.Run(ctx, op.config(), changes) })
	err = manager.Start(ctx)
	cancel()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAPIServer, err)
	}
	return nil
}

// config returns the configuration of the service: all Specs in effect.
func (op *operator) config() spec.Config {
	return op.reconciler.table.config(spec.Config{Concurrency: op.Concurrency, Lease: op.Lease})
}

// gather is how long feed collects changes before it passes them on: the many EtcdBackups that are read at the start become one change.
const gather = 200 * time.Millisecond

// feed passes the Specs to the service after each change, until ctx ends.
func (op *operator) feed(ctx context.Context, changes chan<- spec.Config) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-op.reconciler.table.changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gather):
		}
		select {
		case <-ctx.Done():
			return
		case changes <- op.config():
		}
	}
}

func (op *operator) server() server.Service {
	return server.Service{
		Scheduler: op.scheduler, Listed: op.reconciler.isListed, Metrics: metrics.Registry, Page: page.Handler(), Pruned: op.pruner.Last, Spec: op.scheduler.Spec, Version: op.Identity.Version, By: op.Identity.By,
		Status: func() document.ServeStatus {
			return document.ServeStatus{
				Config: document.ServeConfig{File: "EtcdBackups", Since: op.started}, Clusters: convert.Clusters(op.scheduler.Status()),
				Restores: op.restores.list(),
			}
		},
	}
}
