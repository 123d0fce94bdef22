package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// trusted returns an error if the plan's backup differs from the signed one in the repository: the plan may come from a file that was made
// without --trust.
func (r *run) trusted(ctx context.Context) error {
	if r.plan.Backup == nil || r.cluster.Policy().Trust.None() {
		return nil
	}
	cat, err := r.cluster.Load(ctx, backups.LoadOptions{Only: r.plan.Backup.ID})
	if err != nil {
		return err
	}
	signed, err := cat.Find(r.plan.Backup.ID)
	if errors.Is(err, catalog.ErrNotFound) {
		return &ObstacleError{plan.Obstacle{Base: true}, err}
	}
	if err == nil && (signed.Stored != r.plan.Backup.Stored || signed.Plain != r.plan.Backup.Plain || signed.Seal.Encryption != r.plan.Backup.Seal.Encryption) {
		err = fmt.Errorf("%w: backup %s in the plan is not the signed one: make a new plan with --trust",
			catalog.ErrDamaged, signed.ID)
	}
	return err
}
