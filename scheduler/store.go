package scheduler

import (
	"context"
	"fmt"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Spec returns a cluster's Spec in effect. Errors match ErrUnknown.
func (s *Service) Spec(cluster string) (spec.Spec, error) {
	_, spec, err := s.find(cluster)
	return spec, err
}

// OpenRepository opens the cluster's part of the named repository; the name "" means the cluster's first. Errors match ErrUnknown
// if the configuration lacks the cluster or the repository; others are the store's.
func (s *Service) OpenRepository(ctx context.Context, cluster, name string) (spec.Repository, backup.Store, error) {
	settings, err := s.Spec(cluster)
	if err != nil {
		return spec.Repository{}, backup.Store{}, err
	}
	for _, r := range settings.Repositories {
		if name != "" && name != r.Name {
			continue
		}
		bucket := s.bucket(r)
		err := bucket.Reach(ctx)
		if err != nil {
			return spec.Repository{}, backup.Store{}, fmt.Errorf("repository %s: %w", r.Name, err)
		}
		c, err := repository.OpenWith(bucket, cluster, r.Policy)
		return r, backup.Store{Repository: r.Name, Cluster: c}, err
	}
	return spec.Repository{}, backup.Store{}, fmt.Errorf("repository %q of cluster %s is %w", name, cluster, ErrUnknown)
}
