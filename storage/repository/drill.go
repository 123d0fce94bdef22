package repository

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// LastDrill is the newest proof that came from a drill, whatever it found and of whichever backup, a deleted one too; not ok
// if there is none. One from after until was made by a clock that is wrong, or forged, and does not count. It costs one
// listing, and a read of each proof that is newer by its name.
func (c *Cluster) LastDrill(ctx context.Context, until time.Time) (last catalog.Proof, ok bool, err error) {
	folders, err := c.reader.folders(ctx, LoadOptions{})
	if err != nil {
		return catalog.Proof{}, false, err
	}
	for _, n := range c.reader.proofNames(folders) {
		if n.time.After(until) {
			continue
		}
		if ok && n.time.Before(last.Time.Truncate(time.Millisecond)) { // as names have it
			break
		}
		p, counts, err := c.reader.readProof(ctx, n.backup, n.key)
		if err != nil && !records.IsAbsent(err) && !errors.Is(err, catalog.ErrDamaged) {
			return catalog.Proof{}, false, err
		}
		if counts && p.Drill != nil && !p.Time.After(until) && (!ok || p.Time.After(last.Time)) {
			last, ok = p, true
		}
	}
	return last, ok, nil
}

// proofName is what a proof's key says.
type proofName struct {
	backup catalog.ID
	key    string
	time   time.Time
}

// proofNames are all proofs, newest first by their names.
func (r *Reader) proofNames(folders []folder) (names []proofName) {
	for _, f := range folders {
		for _, o := range f.objects {
			stamp, isProof := strings.CutPrefix(strings.TrimSuffix(path.Base(o.Key), catalog.JSONSuffix), catalog.ProofPrefix)
			if at, err := time.Parse(proofTime, stamp); isProof && err == nil {
				names = append(names, proofName{f.id, o.Key, at})
			}
		}
	}
	slices.SortStableFunc(names, func(a, b proofName) int { return b.time.Compare(a.time) })
	return names
}
