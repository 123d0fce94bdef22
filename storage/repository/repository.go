// Package repository is what etcd-dr keeps in a bucket, for many clusters:
//
//	<cluster>/backups/<id>/snapshot.db.zst[.age]   the sealed snapshot
//	<cluster>/backups/<id>/manifest.json           written last, create-only: with it the backup exists
//	<cluster>/backups/<id>/proof-<time>.json       what a verify found; appended, never rewritten
//	<cluster>/backups/<id>/pin-<pin>.json          it is to stay, until unpin-<pin>.json says otherwise
//	<cluster>/backups/<id>/tombstone-<16 hex>.json it is deleted, unless it is pinned; what is left goes later
//	<cluster>/repository[-<key>].json              the random id that all of it carries which deletes or suspends
package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/suspension"
)

// Cluster is one cluster's part of a repository. It never reads or writes another's.
type Cluster struct {
	store    *records.Store
	log      *log.Log
	reader   *backups.Reader
	leases   *lease.Access
	services *suspension.Switch
}

// Open sees the part of the cluster called name. It asks the bucket nothing: a cluster exists with its first backup.
func Open(bucket storage.Bucket, name string) (*Cluster, error) {
	return OpenWith(bucket, name, records.Policy{})
}

// OpenWith is Open with a policy.
func OpenWith(bucket storage.Bucket, name string, p records.Policy) (*Cluster, error) {
	if err := catalog.ValidCluster(name); err != nil {
		return nil, err
	}
	store := records.New(bucket, name, p)
	c := &Cluster{store: store, log: log.New(store), reader: &backups.Reader{Store: store}, leases: lease.New(store), services: suspension.New(store)}
	store.NewestIsSigned = c.reader.NewestIsSigned
	return c, nil
}

// Policy is what the cluster was opened with; its Trust is what Trusted returns.
func (c *Cluster) Policy() records.Policy { return c.store.Policy }

// Name is the cluster's name in the repository.
func (c *Cluster) Name() string { return c.store.Cluster }

// Clusters are the names of the clusters in bucket, in order. It costs one listing of one object a cluster.
func Clusters(ctx context.Context, bucket storage.Bucket) ([]string, error) {
	var names []string
	for after := ""; ; {
		name, err := firstCluster(ctx, bucket, after)
		if err != nil || name == "" {
			slices.Sort(names) // in the listing "a-b/" stands before "a/"
			return names, err
		}
		if catalog.ValidCluster(name) == nil {
			names = append(names, name)
		}
		after = name + "0" // "0" follows "/": past every key of this cluster, before those of any other
	}
}

func firstCluster(ctx context.Context, bucket storage.Bucket, after string) (string, error) {
	for object, err := range bucket.List(ctx, storage.ListOptions{After: after}) {
		key := object.Key
		if u, unlisted := errors.AsType[*storage.UnlistedError](err); unlisted {
			key, err = u.Prefix, nil
		}
		if err != nil {
			return "", fmt.Errorf("list clusters: %w", err)
		}
		if name, _, ok := strings.Cut(key, "/"); ok {
			return name, nil
		}
	}
	return "", nil
}

// Remembering makes c read headers of the log through h, and returns c.
func (c *Cluster) Remembering(h *log.Headers) *Cluster {
	c.log.Headers = h
	return c
}

// Log returns the cluster's log.
func (c *Cluster) Log() *log.Log { return c.log }

// Backups returns the reader of the cluster's backups.
func (c *Cluster) Backups() *backups.Reader { return c.reader }

// Records returns the store of the cluster's documents.
func (c *Cluster) Records() *records.Store { return c.store }

// Leases returns access to the cluster's leases.
func (c *Cluster) Leases() *lease.Access { return c.leases }

// Services returns the switch that suspends the services of the cluster.
func (c *Cluster) Services() *suspension.Switch { return c.services }
