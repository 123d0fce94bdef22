package repository

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/document"
)

// Cluster is one cluster's part of a repository. It never reads or writes another's.
type Cluster struct {
	bucket storage.Bucket
	name   string
}

// Open sees the part of the cluster called name. It asks the bucket nothing: a cluster exists with its first backup.
func Open(bucket storage.Bucket, name string) (*Cluster, error) {
	if err := ValidCluster(name); err != nil {
		return nil, err
	}
	return &Cluster{bucket: bucket, name: name}, nil
}

// Name is the cluster's name in the repository.
func (c *Cluster) Name() string { return c.name }

// Clusters are the names of the clusters in bucket, in order. It costs one listing of one object a cluster.
func Clusters(ctx context.Context, bucket storage.Bucket) ([]string, error) {
	var names []string
	for after := ""; ; {
		name, err := firstCluster(ctx, bucket, after)
		if err != nil || name == "" {
			slices.Sort(names) // in the listing "a-b/" stands before "a/"
			return names, err
		}
		if ValidCluster(name) == nil {
			names = append(names, name)
		}
		after = name + "0" // "0" follows "/": past every key of this cluster, before those of any other
	}
}

func firstCluster(ctx context.Context, bucket storage.Bucket, after string) (string, error) {
	for object, err := range bucket.List(ctx, storage.ListOptions{After: after}) {
		if err != nil {
			return "", fmt.Errorf("list clusters: %w", err)
		}
		if name, _, ok := strings.Cut(object.Key, "/"); ok {
			return name, nil
		}
	}
	return "", nil
}

// read returns a small object as a whole.
func (c *Cluster) read(ctx context.Context, key string) ([]byte, error) {
	return c.readUpTo(ctx, key, document.MaxSize)
}

// readUpTo returns an object as a whole if it has no more than limit bytes, else ErrDamaged.
func (c *Cluster) readUpTo(ctx context.Context, key string, limit int64) ([]byte, error) {
	r, object, err := c.bucket.Open(ctx, key, storage.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if object.Size > limit {
		return nil, fmt.Errorf("%w: it has %d bytes, more than any document of dr", ErrDamaged, object.Size)
	}
	return io.ReadAll(r)
}
