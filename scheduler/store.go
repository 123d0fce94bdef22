package scheduler

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Spec is what a cluster is to have, as it is in force. Errors match ErrUnknown.
func (s *Service) Spec(cluster string) (Spec, error) {
	_, spec, err := s.find(cluster)
	return spec, err
}

// Store opens the cluster's part of one of its repositories, by name; "" is its first one. Errors match ErrUnknown if the
// configuration does not have it; others are the store's.
func (s *Service) Store(ctx context.Context, cluster, name string) (Repository, backup.Store, error) {
	spec, err := s.Spec(cluster)
	if err != nil {
		return Repository{}, backup.Store{}, err
	}
	for _, r := range spec.Repositories {
		if name != "" && name != r.Name {
			continue
		}
		bucket, err := s.bucket(ctx, r)
		if err != nil {
			return Repository{}, backup.Store{}, fmt.Errorf("repository %s: %w", r.Name, err)
		}
		c, err := repository.OpenWith(bucket, cluster, r.Policy)
		return r, backup.Store{Repository: r.Name, Cluster: c}, err
	}
	return Repository{}, backup.Store{}, fmt.Errorf("repository %q of cluster %s is %w", name, cluster, ErrUnknown)
}

// away is a bucket that could not be opened.
type away struct{ why error }

func (a away) Put(context.Context, string, io.Reader, storage.PutOptions) (storage.Object, error) {
	return storage.Object{}, a.why
}

func (a away) Open(context.Context, string, storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	return nil, storage.Object{}, a.why
}

func (a away) Stat(context.Context, string) (storage.Object, error) { return storage.Object{}, a.why }

func (a away) List(context.Context, storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) { yield(storage.Object{}, a.why) }
}

func (a away) Delete(context.Context, string, storage.DeleteOptions) error { return a.why }
