package retention

import (
	"slices"
	"sort"
)

// fit lets backups go until what stays fits into MaxSize: dubious ones first, for as long as it takes; then good ones, of
// which only the good ones' own size counts and that of the log of the cluster's own histories, so that nothing dubious pushes
// a good one out. The oldest go first.
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

// dropUntil drops the fewest of candidates, oldest first, with which it fits; all that may go if it never does.
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

// size returns the bytes of the kept of candidates, as stored.
func size(candidates []*candidate) (total int64) {
	for _, c := range candidates {
		if c.kept() {
			total += c.Stored.Size
		}
	}
	return total
}
