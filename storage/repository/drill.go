package repository

import (
	"context"
	"errors"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// LastDrill returns the proofs of the newest drill, newest first: with any verdict and of any backup of the live cluster, even a deleted
// one. Without a drill it returns none. Proofs from after until do not count: a wrong clock made them, or an attacker. LastDrill lists
// the backups once and reads proofs, newest first by name, until it has found those of all parts.
func (c *Cluster) LastDrill(ctx context.Context, until time.Time) ([]catalog.Proof, error) {
	folders, err := c.reader.Folders(ctx, backups.LoadOptions{})
	if err != nil {
		return nil, err
	}
	last := lastDrill{until: until}
	for _, n := range c.reader.ProofNames(folders) {
		if n.Time.After(until) {
			continue
		}
		if last.isKnown(n.Time) {
			break
		}
		p, ok, err := c.readDrill(ctx, n.Backup, n.Key)
		if err != nil {
			return nil, err
		}
		if ok {
			last.add(p)
		}
	}
	return last.proofs, nil
}

// readDrill returns the proof under key of backup id. It is not ok unless it counts and is of a drill.
func (c *Cluster) readDrill(ctx context.Context, id catalog.ID, key string) (p catalog.Proof, ok bool, err error) {
	p, ok, err = c.reader.ReadProof(ctx, id, key)
	if err != nil && !records.IsAbsent(err) && !errors.Is(err, catalog.ErrDamaged) {
		return catalog.Proof{}, false, err
	}
	return p, ok && p.Drill != nil, nil
}

// lastDrill collects the proofs of the newest drill.
type lastDrill struct {
	until  time.Time
	proofs []catalog.Proof // newest first
	closed bool            // no earlier proof is of it
}

// longestDrill is how long before a drill's last restore its first one may have begun. Without a bound all proofs would be read if the
// first one was removed with its backup.
const longestDrill = 24 * time.Hour

// isKnown reports whether proofs with names of this time and earlier ones add nothing.
func (d *lastDrill) isKnown(name time.Time) bool {
	if len(d.proofs) == 0 {
		return false
	}
	newest := d.proofs[0].Time.Truncate(time.Millisecond) // names have milliseconds
	return d.closed && name.Before(newest) || name.Before(newest.Add(-longestDrill))
}

// add adds a proof of a drill. Two proofs are of one drill if they are by the same host, and no other part of a drill by it came between.
func (d *lastDrill) add(p catalog.Proof) {
	if p.Time.After(d.until) {
		return
	}
	if len(d.proofs) == 0 || p.Time.After(d.proofs[0].Time) {
		d.proofs, d.closed = []catalog.Proof{p}, p.Drill.Part <= 1
		return
	}
	after := d.proofs[len(d.proofs)-1]
	if d.closed || p.By != after.By {
		return
	}
	follows := p.Drill.Part == after.Drill.Part-1 && p.Drill.Parts == after.Drill.Parts
	if follows {
		d.proofs = append(d.proofs, p)
	}
	d.closed = !follows || p.Drill.Part <= 1
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
		p, ok, err := c.readDrill(ctx, n.Backup, n.Key)
		if err != nil {
			return nil, err
		}
		if ok {
			proofs = append(proofs, p)
		}
	}
	return proofs, nil
}
