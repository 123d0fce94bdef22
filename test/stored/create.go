package stored

import (
	"context"
	"io"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// CreateFrom stores backup id in c: it uploads sealed, then commits the result of manifest.
func CreateFrom(
	ctx context.Context, c *repository.Cluster, id catalog.ID, s seal.Seal, sealed io.Reader, manifest func() (catalog.Manifest, error),
) (catalog.Backup, error) {
	upload, err := c.Upload(ctx, id, repository.Sealed{Seal: s, Reader: sealed})
	if err != nil {
		return catalog.Backup{}, err
	}
	m, err := manifest()
	if err != nil {
		upload.Discard(ctx)
		return catalog.Backup{}, err
	}
	return upload.Commit(ctx, m)
}
