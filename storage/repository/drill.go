package repository

import (
	"context"
	"errors"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// LastDrill is the newest proof that came from a drill, whatever it found and of whichever backup, a deleted one too; not ok
// if there is none. One from after until was made by a clock that is wrong, or forged, and does not count. It costs one
// listing, and a read of each proof that is newer by its name.
func (c *Cluster) LastDrill(ctx context.Context, until time.Time) (last catalog.Proof, ok bool, err error) {
	folders, err := c.reader.Folders(ctx, backups.LoadOptions{})
	if err != nil {
		return catalog.Proof{}, false, err
	}
	for _, n := range c.reader.ProofNames(folders) {
		if n.Time.After(until) {
			continue
		}
		if ok && n.Time.Before(last.Time.Truncate(time.Millisecond)) { // as names have it
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
