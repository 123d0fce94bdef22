// Package dropin serves the custom resources of the archived coreos/etcd-operator. In its comments, "theirs" is an object of
// etcd.database.coreos.com, and "ours" one of legacy.etcd-dr.io.
//
// For each EtcdBackup and EtcdRestore of theirs the leader creates one of ours, translated by package foreign, and copies its progress into the
// status of theirs. A restore moves the members of an EtcdCluster into a StatefulSet: see func next.
package dropin

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-dr/etcd-dr/api/coreos"
	"github.com/etcd-dr/etcd-dr/api/foreign"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Options are the options of Add.
type Options struct {
	Client client.Client // reads and writes all objects; must not cache
	Leads  func() bool   // whether this operator leads; others do nothing
	// Open opens the bucket of a repository with the Secrets of a namespace, never with the operator's own identity. The cluster's name
	// fills in the URL. r.CredentialsSecret must not be nil.
	Open           func(ctx context.Context, namespace string, r v1alpha1.Repository, cluster string) (storage.Bucket, error)
	PlainSnapshots bool // also stores each backup as a plain snapshot under the path of their EtcdBackup
}

// openCluster opens a cluster in a repository with Open.
func (o Options) openCluster(ctx context.Context, namespace string, r v1alpha1.Repository, cluster string) (*repository.Cluster, error) {
	bucket, err := o.Open(ctx, namespace, r, cluster)
	if err != nil {
		return nil, err
	}
	return repository.Open(bucket, cluster)
}

// The times between two reconciliations of one object.
const (
	notLeading = 10 * time.Second // another operator leads
	faultAfter = 10 * time.Second // something is wrong that a person may cure
	soonAfter  = time.Second      // something is about to change that is not watched
)

// workers is the number of objects of a kind that are reconciled at a time. One that stores a plain snapshot takes as long as its transfer.
const workers = 4

// Add adds the reconcilers to a manager, whose scheme has their types and ours. The definitions of both must exist: see Define.
func Add(m ctrl.Manager, o Options) error {
	// The definitions of coreos' operator have no schema: one object whose spec cannot be decoded must not end the watch of all.
	err := ctrl.NewControllerManagedBy(m).For(&coreos.EtcdBackup{}, builder.OnlyMetadata).Owns(&v1alpha1.EtcdBackup{}).
		WithOptions(options()).Complete(&backupReconciler{o})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(m).For(&coreos.EtcdRestore{}, builder.OnlyMetadata).Owns(&v1alpha1.EtcdRestore{}).
		WithOptions(options()).Complete(&restoreReconciler{o})
}

// options returns the options of a controller.
func options() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		CacheSyncTimeout:        math.MaxInt64, // without a definition our own objects are still carried out
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](soonAfter, faultAfter),
	}
}

// translate returns the translations of objects of their group, in their order. A restore is translated better together with its cluster.
func (o Options) translate(objects ...client.Object) ([]foreign.Translation, error) {
	var files []foreign.File
	for _, object := range objects {
		kind, err := o.Client.GroupVersionKindFor(object)
		if err != nil {
			return nil, err
		}
		object.GetObjectKind().SetGroupVersionKind(kind)
		text, err := json.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("cannot encode %s %s: %w", kind.Kind, client.ObjectKeyFromObject(object), err)
		}
		files = append(files, foreign.File{Name: object.GetName(), Text: text})
	}
	return foreign.Translate(files, foreign.Options{ByPath: true})
}

// ownedBy returns the metadata of an object of ours in the namespace of theirs, which is deleted with it.
func ownedBy(theirs client.Object, kind, name string) metav1.ObjectMeta {
	owner := metav1.NewControllerRef(theirs, coreos.GroupVersion.WithKind(kind))
	owner.BlockOwnerDeletion = nil // it needs the right to set finalizers of theirs
	return metav1.ObjectMeta{Name: name, Namespace: theirs.GetNamespace(), OwnerReferences: []metav1.OwnerReference{*owner}}
}
