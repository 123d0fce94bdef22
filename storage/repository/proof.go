package repository

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
)

// Append stores p as a proof of p.Backup, with Format set. Without a key it gives records.ErrUnsigned if the newest backup is
// signed.
func (c *Cluster) Append(ctx context.Context, p catalog.Proof) error {
	err := c.store.RefuseUnsigned(ctx)
	if err != nil {
		return fmt.Errorf("proof of backup %s: %w", p.Backup, err)
	}
	p.Format = catalog.Proofs.Format
	data, err := catalog.Proofs.Encode(p)
	if err == nil {
		data, err = document.Sign(data, c.store.Policy.Key)
	}
	if err != nil {
		return fmt.Errorf("proof of backup %s: %w", p.Backup, err)
	}
	for stamp := p.Time.UTC(); ; stamp = stamp.Add(time.Millisecond) { // two proofs of one millisecond have different names
		key := catalog.BackupKey(c.store.Cluster, p.Backup, catalog.ProofPrefix+stamp.Format(backups.ProofTime)+catalog.JSONSuffix)
		err = c.store.Create(ctx, key, bytes.NewReader(data), int64(len(data)))
		if !errors.Is(err, storage.ErrExist) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("store the proof of backup %s: %w", p.Backup, err)
	}
	return nil
}
