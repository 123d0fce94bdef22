// Package repository writes, lists and prunes the backups of etcd clusters in a bucket. A bucket serves many clusters; each has
// its own part, which a Cluster opens. Upload and Commit store a backup, Load and Survey read the catalog, Fetch reads a snapshot
// back, and Prune removes what retention no longer keeps. The objects of one cluster are:
//
//	<cluster>/backups/<id>/snapshot.db.zst[.age]   the sealed snapshot
//	<cluster>/backups/<id>/manifest.json           written last, create-only: the backup exists once it is stored
//	<cluster>/backups/<id>/proof-<time>.json       the result of a verify or a drill; never rewritten
//	<cluster>/backups/<id>/pin-<pin>.json          keeps the backup, until unpin-<pin>.json lifts the pin
//	<cluster>/backups/<id>/tombstone-<16 hex>.json deletes the backup unless it is pinned; a sweep removes its objects later
//	<cluster>/backups-index.zst                    copies of manifests and proofs; it only saves requests, and a prune replaces it
//	<cluster>/log-summary.json                     the folded indexes of the log; it only saves requests, and a prune replaces it
//	<cluster>/log-recent.json                      the headers of the newest segments of the log; it only saves requests, and the agent replaces it
//	<cluster>/repository[-<key>].json              the marker: a random id that tombstones, unpins and suspensions repeat
//
// Packages log, lease, suspension and assets describe the rest.
package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/suspension"
)

// Cluster is one cluster's part of a repository. It never reads or writes another cluster's part.
type Cluster struct {
	store    *records.Store
	log      *log.Log
	reader   *backups.Reader
	leases   *lease.Access
	services *suspension.Switch
	assets   *assets.Access
}

// Open returns the part of the cluster called name, under the zero Policy. It sends no request: a cluster exists from its first
// object on. An invalid name gives catalog.ErrName.
func Open(bucket storage.Bucket, name string) (*Cluster, error) {
	return OpenWith(bucket, name, records.Policy{})
}

// OpenWith is Open under the policy p.
func OpenWith(bucket storage.Bucket, name string, p records.Policy) (*Cluster, error) {
	err := catalog.ValidCluster(name)
	if err != nil {
		return nil, err
	}
	store := records.New(bucket, name, p)
	c := &Cluster{store: store, log: log.New(store), reader: &backups.Reader{Store: store}, leases: lease.New(store), services: suspension.New(store), assets: assets.New(store)}
	store.NewestIsSigned = c.reader.NewestIsSigned
	return c, nil
}

// Policy returns the policy under which c was opened, with Trust replaced by the result of Policy.Trusted.
func (c *Cluster) Policy() records.Policy { return c.store.Policy }

// Name returns the cluster's name in the repository.
func (c *Cluster) Name() string { return c.store.Cluster }

// Clusters returns the sorted names of the clusters in bucket. It sends one request for each cluster, and one more. On error
// it returns the names found so far.
func Clusters(ctx context.Context, bucket storage.Bucket) ([]string, error) {
	var names []string
	for after := ""; ; {
		name, err := firstCluster(ctx, bucket, after)
		if err != nil || name == "" {
			slices.Sort(names) // a listing has "a-b/" before "a/"
			return names, err
		}
		if catalog.ValidCluster(name) == nil {
			names = append(names, name)
		}
		after = name + "0" // "0" follows "/": after every key of this cluster, before those of any other
	}
}

// firstCluster returns the first path element of the first key after the given one, "" if there is none.
func firstCluster(ctx context.Context, bucket storage.Bucket, after string) (string, error) {
	for object, err := range bucket.List(ctx, storage.ListOptions{After: after}) {
		key := object.Key
		u, unlisted := errors.AsType[*storage.UnlistedError](err)
		if unlisted {
			key, err = u.Prefix, nil
		}
		if err != nil {
			return "", fmt.Errorf("list clusters: %w", err)
		}
		name, _, ok := strings.Cut(key, "/")
		if ok {
			return name, nil
		}
	}
	return "", nil
}

// Remembering makes c cache the headers of the log's segments in h, and returns c.
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

// Assets returns access to the assets of the cluster's nodes.
func (c *Cluster) Assets() *assets.Access { return c.assets }
