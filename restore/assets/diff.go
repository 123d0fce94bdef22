package assets

import (
	"context"

	taken "github.com/etcd-dr/etcd-dr/backup/assets"
	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Compared is a version of a node's files, and how those on the node differ from it.
type Compared struct {
	Stored      []assets.File
	Differences []assets.Difference // without content
}

// Diff compares the node's files below root with a version.
func Diff(ctx context.Context, c *repository.Cluster, m assets.Manifest, keys seal.Keys, root string) (Compared, error) {
	version, err := c.Assets().Fetch(ctx, m, keys)
	if err != nil {
		return Compared{}, err
	}
	node, err := taken.Collect(root, m.Paths)
	if err != nil {
		return Compared{}, err
	}
	return Compared{version, assets.Compare(version, node.Files, m.Paths)}, nil
}

// Node is a node, as this process reaches its files.
type Node struct {
	Name string
	Root string // directory at which its paths begin: "/" on the node itself
}
