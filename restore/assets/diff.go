package assets

import (
	"context"

	taken "github.com/etcd-dr/etcd-dr/backup/assets"
	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Diff returns how the node's files below root differ from a version, without their content.
func Diff(ctx context.Context, c *repository.Cluster, m assets.Manifest, keys seal.Keys, root string) ([]assets.Difference, error) {
	version, err := c.Assets().Fetch(ctx, m, keys)
	if err != nil {
		return nil, err
	}
	node, err := taken.Collect(root, m.Paths)
	if err != nil {
		return nil, err
	}
	return assets.Compare(version, node.Files, m.Paths), nil
}

// DiffNewest is Diff for the newest version of a node, which it returns too. A restore of etcd can warn with it when the node has
// another certificate authority than the backup's cluster. The error matches catalog.ErrNotFound if the node has no version.
func DiffNewest(ctx context.Context, c *repository.Cluster, keys seal.Keys, on Node) (assets.Manifest, []assets.Difference, error) {
	m, _, err := c.Assets().Find(ctx, on.Name, "")
	if err != nil {
		return assets.Manifest{}, nil, err
	}
	differences, err := Diff(ctx, c, m, keys, on.Root)
	return m, differences, err
}

// Node is a node, as this process reaches its files.
type Node struct {
	Name string
	Root string // directory at which its paths begin: "/" on the node itself
}
