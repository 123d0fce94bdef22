package log

import (
	"iter"
	"math"
	"sort"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// listed is a segment in a listing.
type listed struct {
	seq  uint64
	size int64 // bytes; math.MaxUint32 for all larger ones, which then match no index; 0 if unknown
}

// listing is the segments of a lineage as the store lists them, ascending by seq. A segment takes eight bytes: there are
// millions.
type listing struct{ runs []listedRun }

// listedRun is a run of segments with consecutive seqs. It has at least one.
type listedRun struct {
	first, last uint64   // seqs
	sizes       []uint32 // bytes of each; without those that the index of the pack did not describe
	times       []uint32 // when each was stored, in Unix seconds; nil for the segments of a pack
	pack        *pack    // contains the segments; nil: each is an object of its own
}

const longestRun = 4096 // segments: append copies a run when it grows

// add appends a segment of size bytes that was stored at a time. Its seq must be higher than all others.
func (l *listing) add(seq uint64, size int64, stored time.Time) {
	n := len(l.runs)
	if !l.endsBefore(seq) || len(l.runs[n-1].sizes) == longestRun {
		l.runs = append(l.runs, listedRun{first: seq})
		n++
	}
	r := &l.runs[n-1]
	r.last = seq
	r.sizes = append(r.sizes, uint32(min(size, math.MaxUint32)))
	r.times = append(r.times, unixSeconds(stored))
}

// unixSeconds returns t in seconds, as times of a listedRun are.
func unixSeconds(t time.Time) uint32 { return uint32(max(0, min(t.Unix(), math.MaxUint32))) }

// endsBefore reports whether the last segment is the one directly before seq.
func (l listing) endsBefore(seq uint64) bool {
	n := len(l.runs)
	return n > 0 && l.runs[n-1].last+1 == seq
}

// run returns the run that includes seq; nil if none does.
func (l listing) run(seq uint64) *listedRun {
	i := l.search(seq)
	if i == len(l.runs) || seq < l.runs[i].first {
		return nil
	}
	return &l.runs[i]
}

// search returns the index of the first run that ends with seq or later; len(l.runs) if there is none.
func (l listing) search(seq uint64) int {
	return sort.Search(len(l.runs), func(i int) bool { return l.runs[i].last >= seq })
}

// sizeOf returns the size of a segment that is an object of its own, in bytes; 0 for any other.
func (l listing) sizeOf(seq uint64) int64 {
	r := l.run(seq)
	if r == nil || r.pack != nil {
		return 0
	}
	return r.size(seq)
}

// count returns the number of segments from first to last.
func (l listing) count(first, last uint64) (n uint64) {
	for i := l.search(first); i < len(l.runs) && l.runs[i].first <= last; i++ {
		n += min(l.runs[i].last, last) - max(l.runs[i].first, first) + 1
	}
	return n
}

// has reports whether s is listed with its size.
func (l listing) has(s catalog.Segment) bool {
	r := l.run(s.Seq)
	return r != nil && r.size(s.Seq) == s.Size
}

// size returns the size of the segment seq, which r includes, in bytes; 0 if it is unknown.
func (r *listedRun) size(seq uint64) int64 {
	i := seq - r.first
	if i >= uint64(len(r.sizes)) {
		return 0
	}
	return int64(r.sizes[i])
}

// storedAt returns when the segment seq was stored, to the second. It is not ok unless the segment is listed as an object of its own.
func (l listing) storedAt(seq uint64) (t time.Time, ok bool) {
	r := l.run(seq)
	if r == nil || r.pack != nil {
		return time.Time{}, false
	}
	return time.Unix(int64(r.times[seq-r.first]), 0), true
}

// sum returns a digest of the sizes of the segments from first to last. It is not whole if one of them is not listed as an object
// of its own.
func (l listing) sum(first, last uint64) (sum uint64, whole bool) {
	const prime = 1099511628211 // of FNV-1a
	next := first
	for i := l.search(first); i < len(l.runs) && l.runs[i].first <= last; i++ {
		r := &l.runs[i]
		if r.first > next || r.pack != nil {
			return 0, false
		}
		next = min(last, r.last) + 1
		for seq := max(first, r.first); seq < next; seq++ {
			sum = (sum ^ uint64(r.sizes[seq-r.first])) * prime
		}
	}
	return sum, next == last+1
}

// all yields the segments, ascending by seq.
func (l listing) all() iter.Seq[listed] {
	return func(yield func(listed) bool) {
		for _, r := range l.runs {
			for seq := r.first; seq <= r.last; seq++ {
				if !yield(listed{seq, r.size(seq)}) {
					return
				}
			}
		}
	}
}

// after returns l without the segments up to and including seq.
func (l listing) after(seq uint64) listing {
	_, left := l.cut(seq + 1)
	return left
}

// cut returns the segments before seq, and those from seq on.
func (l listing) cut(seq uint64) (before, from listing) {
	i := l.search(seq)
	before.runs, from.runs = l.runs[:i:i], l.runs[i:]
	if i == len(l.runs) || l.runs[i].first >= seq {
		return before, from
	}
	r := l.runs[i]
	before.runs = append(before.runs, r.part(r.first, seq-1))
	from.runs = append([]listedRun{r.part(seq, r.last)}, l.runs[i+1:]...)
	return before, from
}

// part returns the segments of r from first to last.
func (r listedRun) part(first, last uint64) listedRun {
	between := func(values []uint32) []uint32 {
		n := uint64(len(values))
		return values[min(n, first-r.first):min(n, last+1-r.first)]
	}
	return listedRun{first: first, last: last, sizes: between(r.sizes), times: between(r.times), pack: r.pack}
}

// withPacks returns l with runs for the segments that only packs contain. packs are ascending and do not overlap.
func (l listing) withPacks(packs []*pack) listing {
	var all listing
	next := uint64(0) // after the last segment in all
	add := func(r listedRun) {
		all.runs = append(all.runs, r)
		next = r.last + 1
	}
	runs := l.runs
	for _, p := range packs {
		for len(runs) > 0 && runs[0].first <= p.last {
			next = max(next, min(p.first, runs[0].first))
			if next < runs[0].first {
				add(listedRun{first: next, last: runs[0].first - 1, pack: p})
			}
			add(runs[0])
			runs = runs[1:]
		}
		next = max(next, p.first)
		if next <= p.last {
			add(listedRun{first: next, last: p.last, pack: p})
		}
	}
	all.runs = append(all.runs, runs...)
	return all
}

// setPackedSizes sets the sizes of the segments that must be read from p. segments are the first ones in p. They are read from p if they
// have no object of their own, or one that is newer than p. Such an object is not the packed segment: a writer slept, and used the name
// after a prune had freed it. p may be nil.
func (l listing) setPackedSizes(p *pack, segments []catalog.Segment) {
	if p == nil {
		return
	}
	end := p.first + uint64(len(segments))
	for i := l.search(p.first); i < len(l.runs) && l.runs[i].first <= p.last; i++ {
		r := &l.runs[i]
		if r.pack == p {
			r.sizes = nil
		}
		for seq := max(r.first, p.first); seq <= min(r.last, p.last) && seq < end; seq++ {
			size := uint32(min(segments[seq-p.first].Size, math.MaxUint32))
			switch {
			case r.pack == p:
				r.sizes = append(r.sizes, size)
			case r.pack == nil && r.times[seq-r.first] > unixSeconds(p.stored):
				r.sizes[seq-r.first] = size
			}
		}
	}
}
