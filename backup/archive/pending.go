package archive

import (
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// pending contains the requests that were read and are not cut into a segment yet: one stretch of positions.
type pending struct {
	first, last uint64      // the positions of the stretch; last is first-1 if it is empty
	end         segment.End // at last
	requests    []segment.Record
	bytes       int
	guessed     int       // number of lease grants with a guessed TTL among the requests
	since       time.Time // no request is older

	marks  []segment.Mark // ascending; some may lie after last, because marks are requested while the log is read
	hashes []segment.Hash
}

// startAfter returns an empty stretch after end.
func startAfter(end segment.End) pending {
	return pending{first: end.Position + 1, last: end.Position, end: end}
}

// add appends a batch, which must follow the last position. No request of it is older than since.
func (p *pending) add(b segment.Batch, since time.Time) {
	if len(p.requests) == 0 && len(b.Requests) > 0 {
		p.since = since
	}
	if p.last < p.first { // an empty stretch: the batch may begin later than requested, after a gap
		p.first = b.First
	}
	p.last, p.end = b.Last, b.End
	p.requests = append(p.requests, b.Requests...)
	p.guessed += b.GuessedLeases
	for _, r := range b.Requests {
		p.bytes += len(r.Data)
	}
}

// due reports whether the requests must not wait any longer. It is false without a request.
func (p *pending) due(now time.Time, flush time.Duration, size int) bool {
	return len(p.requests) > 0 && (p.bytes >= size || p.untilFlush(now, flush) <= 0)
}

// untilFlush returns how long the requests can wait still, so that none becomes older than flush.
func (p *pending) untilFlush(now time.Time, flush time.Duration) time.Duration {
	return p.since.Add(flush).Sub(now)
}

// mark adds m. Of several marks at one position it keeps the first and the newest, both with the highest revision of any of them:
// a member that applies late reports the position before its revision. The first one records when the state began: without it, a
// target time in a long idle period would select an older state.
func (p *pending) mark(m segment.Mark) {
	n := len(p.marks)
	if n > 0 {
		last := p.marks[n-1]
		if m.Position < last.Position { // reported by a member that has just restarted
			return
		}
		m.NotBefore, m.NotAfter = storage.Later(m.NotBefore, last.NotBefore), storage.Later(m.NotAfter, last.NotAfter)
		if m.Position == last.Position {
			m.Revision = max(m.Revision, last.Revision)
			if n > 1 && p.marks[n-2].Position == m.Position {
				p.marks = p.marks[:n-1]
			}
			p.marks[len(p.marks)-1].Revision = m.Revision
		}
	}
	p.marks = thin(append(p.marks, m))
}

// hash adds h in the order of positions.
func (p *pending) hash(h segment.Hash) {
	at := len(p.hashes)
	for at > 0 && p.hashes[at-1].Position > h.Position {
		at--
	}
	p.hashes = slices.Insert(p.hashes, at, h)
}

// maxMarks bounds the marks of a header, which are many after the store was unreachable for long.
const maxMarks = 256

// thin returns marks if they are at most maxMarks, else every other one, with the first and the last. It overwrites marks.
func thin(marks []segment.Mark) []segment.Mark {
	if len(marks) <= maxMarks {
		return marks
	}
	kept := marks[:0]
	for i, m := range marks {
		if i%2 == 0 || i == len(marks)-1 {
			kept = append(kept, m)
		}
	}
	return kept
}

// cut removes and returns everything that can be stored now. It leaves an empty stretch, with the marks and hashes of later
// positions.
func (p *pending) cut() pending {
	out := *p
	*p = startAfter(p.end)
	out.marks, p.marks = split(out.marks, out.last, func(m segment.Mark) uint64 { return m.Position })
	out.hashes, p.hashes = split(out.hashes, out.last, func(h segment.Hash) uint64 { return h.Position })
	return out
}

// split separates elements up to position last from later ones.
func split[T any](all []T, last uint64, position func(T) uint64) (upTo, beyond []T) {
	for i, one := range all {
		if position(one) > last {
			return all[:i:i], append(beyond, all[i:]...)
		}
	}
	return all, nil
}
