package log

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// listed is a segment in a listing.
type listed struct {
	seq  uint64
	size int64 // bytes; math.MaxUint32 for all larger ones, which then match no index
}

// listing is the segments of a lineage as the store lists them, ascending by seq. A segment takes four bytes: there are
// millions.
type listing struct{ runs []listedRun }

// listedRun is a run of segments with consecutive seqs. It has at least one.
type listedRun struct {
	first uint64 // seq
	sizes []uint32
}

const longestRun = 4096 // segments: append copies a run when it grows

// last returns the seq of the last segment.
func (r listedRun) last() uint64 { return r.first + uint64(len(r.sizes)-1) }

// add appends a segment of size bytes. Its seq must be higher than all others.
func (l *listing) add(seq uint64, size int64) {
	n := len(l.runs)
	if !l.endsBefore(seq) || len(l.runs[n-1].sizes) == longestRun {
		l.runs = append(l.runs, listedRun{first: seq})
		n++
	}
	r := &l.runs[n-1]
	r.sizes = append(r.sizes, uint32(min(size, math.MaxUint32)))
}

// endsBefore reports whether the last segment is the one directly before seq.
func (l listing) endsBefore(seq uint64) bool {
	n := len(l.runs)
	return n > 0 && l.runs[n-1].last()+1 == seq
}

// has reports whether s is listed with its size.
func (l listing) has(s catalog.Segment) bool {
	i, found := slices.BinarySearchFunc(l.runs, s.Seq, func(r listedRun, seq uint64) int { return cmp.Compare(r.first, seq) })
	if !found {
		i--
	}
	return i >= 0 && s.Seq <= l.runs[i].last() && int64(l.runs[i].sizes[s.Seq-l.runs[i].first]) == s.Size
}

// sum returns a digest of the sizes of the segments from first to last. It is not whole if one of them is not listed.
func (l listing) sum(first, last uint64) (sum uint64, whole bool) {
	const prime = 1099511628211 // of FNV-1a
	next := first
	for _, r := range l.runs {
		if r.last() < first || r.first > last {
			continue
		}
		if r.first > next {
			return 0, false
		}
		for seq := max(first, r.first); seq <= min(last, r.last()); seq++ {
			sum = (sum ^ uint64(r.sizes[seq-r.first])) * prime
			next = seq + 1
		}
	}
	return sum, next == last+1
}

// all yields the segments, ascending by seq.
func (l listing) all() iter.Seq[listed] {
	return func(yield func(listed) bool) {
		for _, r := range l.runs {
			for i, size := range r.sizes {
				if !yield(listed{r.first + uint64(i), int64(size)}) {
					return
				}
			}
		}
	}
}

// backward yields the segments, descending by seq.
func (l listing) backward() iter.Seq[listed] {
	return func(yield func(listed) bool) {
		for _, r := range slices.Backward(l.runs) {
			for i, size := range slices.Backward(r.sizes) {
				if !yield(listed{r.first + uint64(i), int64(size)}) {
					return
				}
			}
		}
	}
}

// after returns l without the segments up to and including seq.
func (l listing) after(seq uint64) (left listing) {
	for _, r := range l.runs {
		if r.last() <= seq {
			continue
		}
		gone := max(r.first, seq+1) - r.first
		if gone > 0 {
			r = listedRun{seq + 1, r.sizes[gone:]}
		}
		left.runs = append(left.runs, r)
	}
	return left
}
