package repository

import (
	"context"
	"errors"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// LastDrill returns the newest proof that came from a drill, with any verdict and of any backup of the live cluster, even a
// deleted one. It is not ok if there is none. Proofs from after until do not count: a wrong clock made them, or an attacker.
// LastDrill lists the backups once and reads proofs, newest first by name, until it has found the last drill.
func (c *Cluster) LastDrill(ctx context.Context, until time.Time) (last catalog.Proof, ok bool, err error) {
	folders, err := c.reader.Folders(ctx, backups.LoadOptions{})
	if err != nil {
		return catalog.Proof{}, false, err
	}
	for _, n := range c.reader.ProofNames(folders) {
		if n.Time.After(until) {
			continue
		}
		if ok && n.Time.Before(last.Time.Truncate(time.Millisecond)) { // names have milliseconds
			break
		}
		p, counts, err := c.reader.ReadProof(ctx, n.Backup, n.Key)
		if err != nil && !records.IsAbsent(err) && !errors.Is(err, catalog.ErrDamaged) {
			return catalog.Proof{}, false, err
		}
		if counts && p.Drill != nil && !p.Time.After(until) && (!ok || p.Time.After(last.Time)) {
			last, ok = p, true
		}
	}
	return last, ok, nil
}

// Drills returns the proofs of drills of the live cluster that began at since or later, with any verdict and of any backup, newest
// first.
func (c *Cluster) Drills(ctx context.Context, since time.Time) (proofs []catalog.Proof, err error) {
	folders, err := c.reader.Folders(ctx, backups.LoadOptions{})
	if err != nil {
		return nil, err
	}
	for _, n := range c.reader.ProofNames(folders) {
		if n.Time.Before(since.Truncate(time.Millisecond)) { // names have milliseconds
			break
		}
		p, counts, err := c.reader.ReadProof(ctx, n.Backup, n.Key)
		if err != nil && !records.IsAbsent(err) && !errors.Is(err, catalog.ErrDamaged) {
			return nil, err
		}
		if counts && p.Drill != nil {
			proofs = append(proofs, p)
		}
	}
	return proofs, nil
}
