package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/etcd-dr/etcd-dr/api/controller/dropin"
	"github.com/etcd-dr/etcd-dr/api/controller/restores"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/storage"
)

// define creates the definitions of the custom resources that are missing.
func define(ctx context.Context, access *rest.Config) error {
	c, err := uncached(access, runtime.NewScheme())
	if err != nil {
		return err
	}
	return dropin.Define(ctx, c)
}

// addCoreos adds the reconcilers of the custom resources of coreos' operator to the manager.
func (op *operator) addCoreos(m ctrl.Manager, access *rest.Config) error {
	plain, err := uncached(access, m.GetScheme())
	if err != nil {
		return err
	}
	from := sources{client: m.GetClient(), uncached: plain, loopback: op.Loopback}
	open := func(ctx context.Context, namespace string, r v1alpha1.Repository, cluster string) (storage.Bucket, error) {
		built, err := from.Repository(ctx, namespace, restores.Settings{Cluster: cluster, Repository: r})
		if err != nil {
			return nil, err
		}
		return op.scheduler.Open(ctx, built)
	}
	return dropin.Add(m, dropin.Options{Client: plain, Leads: op.leader.leads, Open: open, PlainSnapshots: op.PlainSnapshots})
}

// group returns the group of the EtcdBackups and EtcdRestores that the operator serves.
func (op *operator) group() string {
	if op.Coreos {
		return v1alpha1.LegacyGroup
	}
	return v1alpha1.GroupVersion.Group
}
