package dropin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/api/foreign"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// target returns what the restore restores: a backup of dr, or the import of the snapshot that their operator has stored under the path.
func (a *adoption) target(ctx context.Context) (v1alpha1.RestoreTarget, error) {
	ctx, cancel := context.WithTimeout(ctx, targetTime)
	defer cancel()
	from := a.spec.From
	of, err := a.openCluster(ctx, a.theirs.Namespace, *from.Repository, from.Cluster)
	if err != nil {
		return v1alpha1.RestoreTarget{}, err
	}
	cat, err := of.Load(ctx, backups.LoadOptions{Imported: true})
	if err != nil {
		return v1alpha1.RestoreTarget{}, err
	}
	return choose(cat, a.spec.Target, a.old)
}

// targetTime bounds target: a slow store keeps a worker for so long.
const targetTime = 5 * time.Minute

// choose returns the target if the catalog has a backup for it, even one that is damaged, so that our EtcdRestore reports the damage. Without a
// backup it returns the newest import of the old snapshot. Without an import too, the error matches catalog.ErrNotFound.
func choose(cat catalog.Catalog, target v1alpha1.RestoreTarget, old foreign.Old) (v1alpha1.RestoreTarget, error) {
	find := func() (catalog.Backup, error) { return cat.Find(catalog.ID(target.Backup)) }
	if target.Latest != nil {
		find = cat.Latest
	}
	_, err := find()
	if !errors.Is(err, catalog.ErrNotFound) {
		return target, nil
	}
	for _, b := range cat.Imported {
		if b.Origin.File == old.File {
			return v1alpha1.RestoreTarget{Backup: string(b.ID)}, nil
		}
	}
	return v1alpha1.RestoreTarget{}, fmt.Errorf("a backup of %s is %w: if coreos' operator has stored this snapshot, run %s", old.File, catalog.ErrNotFound, old.Import)
}
