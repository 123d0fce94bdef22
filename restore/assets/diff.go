package assets

import (
	"context"
	"time"

	taken "github.com/etcd-dr/etcd-dr/backup/assets"
	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Diff returns how the node's files below root differ from a version, without their content.
func Diff(ctx context.Context, c *repository.Cluster, m assets.Manifest, keys seal.Keys, root string) ([]assets.Difference, error) {
	compared, err := compare(ctx, c, m, keys, root)
	return compared.Differences, err
}

// Compared is a version of a node's files, and how those on the node differ from it.
type Compared struct {
	assets.Manifest
	Stored      []assets.File
	Differences []assets.Difference
}

// DiffAround compares a node with the versions around a time: see assets.Access.Around. A restore of etcd can warn with it when the node has
// another certificate authority than the cluster had then. The error matches catalog.ErrNotFound if the node has no version.
func DiffAround(ctx context.Context, c *repository.Cluster, keys seal.Keys, on Node, at time.Time) (all []Compared, err error) {
	around, err := c.Assets().Around(ctx, on.Name, at)
	if err != nil {
		return nil, err
	}
	for _, m := range around {
		one, err := compare(ctx, c, m, keys, on.Root)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func compare(ctx context.Context, c *repository.Cluster, m assets.Manifest, keys seal.Keys, root string) (Compared, error) {
	version, err := c.Assets().Fetch(ctx, m, keys)
	if err != nil {
		return Compared{}, err
	}
	node, err := taken.Collect(root, m.Paths)
	if err != nil {
		return Compared{}, err
	}
	return Compared{m, version, assets.Compare(version, node.Files, m.Paths)}, nil
}

// Node is a node, as this process reaches its files.
type Node struct {
	Name string
	Root string // directory at which its paths begin: "/" on the node itself
}
