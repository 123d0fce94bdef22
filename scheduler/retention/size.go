package retention

import (
	"slices"
	"sort"
)

// fit lets backups go until what stays fits into MaxSize: dubious ones first, for as long as it takes; then good ones, of
// which only the good ones' own size and the log's counts, so that no dubious one pushes a good one out. The oldest go first.
func (k *keeping) fit() {
	if k.policy.MaxSize == 0 {
		return
	}
	k.dropUntil(k.dubious, func() bool { return k.size(k.backups) <= k.policy.MaxSize })
	k.dropUntil(k.good, func() bool { return k.size(k.good) <= k.policy.MaxSize })
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

// size is what the kept of candidates and the log have, in bytes.
func (k *keeping) size(candidates []*candidate) int64 {
	total, _ := k.logBytes()
	for _, c := range candidates {
		if c.kept() {
			total += c.Stored.Size
		}
	}
	return total
}
