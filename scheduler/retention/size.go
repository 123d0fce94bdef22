package retention

import (
	"slices"
	"sort"
)

// fit drops backups, oldest first, until the rest fits into MaxSize. Dubious ones go first. Then good ones go, until they and
// the log of the cluster's own histories fit: nothing dubious displaces a good backup.
func (k *keeping) fit() {
	if k.policy.MaxSize == 0 {
		return
	}
	k.dropUntil(k.dubious, func() bool {
		log, _ := k.logBytes()
		return log+size(k.backups) <= k.policy.MaxSize
	})
	k.dropUntil(k.good, func() bool { return k.ownLogBytes()+size(k.good) <= k.policy.MaxSize })
}

// dropUntil drops the fewest candidates, oldest first, after which fits returns true; if it never does, all that may go.
func (k *keeping) dropUntil(candidates []*candidate, fits func() bool) {
	var loose []*candidate
	for _, c := range slices.Backward(candidates) {
		if c.kept() && !c.firm {
			loose = append(loose, c)
		}
	}
	drop := func(n int) {
		for i, c := range loose {
			c.dropped = i < n
		}
	}
	drop(sort.Search(len(loose), func(n int) bool {
		drop(n)
		return fits()
	}))
}

// size returns the stored bytes of the candidates that are kept.
func size(candidates []*candidate) (total int64) {
	for _, c := range candidates {
		if c.kept() {
			total += c.Stored.Size
		}
	}
	return total
}
