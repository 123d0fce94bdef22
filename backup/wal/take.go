package wal

import (
	"fmt"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Take returns committed entries that were not taken yet, of about maxBytes in total, but at least one entry. If there is
// none, it returns an empty batch, whose First is 0. The errors are
//   - *GapError if the log does not have the next position, or has a request there that cannot be replayed. Take returns it
//     again until Resume or Skip is called.
//   - ErrForked if the log does not continue after the expected entry.
//   - ErrEntry if the next entry is not a request that this version knows.
func (l *Log) Take(maxBytes int) (segment.Batch, error) {
	h := &l.history
	if l.err == nil {
		l.err = h.err
	}
	if l.err != nil {
		return segment.Batch{}, l.err
	}
	err := l.seek()
	if err != nil {
		return segment.Batch{}, err
	}
	var b segment.Batch
	var last item
	for size := 0; h.ready() && !h.held[0].missing && (b.First == 0 || size < maxBytes); {
		request, unusable, err := classify(h.held[0])
		if unusable != nil {
			at := h.held[0].index
			err = &GapError{From: at, To: at, Unusable: unusable}
		}
		if err != nil {
			if b.First == 0 {
				return b, err
			}
			break
		}
		last = h.pop()
		size += len(last.data)
		addToBatch(&b, last, request)
	}
	if b.First != 0 {
		b.End = last.end()
		l.next, l.end, l.anywhere = b.Last+1, b.End, false
	}
	return b, nil
}

// seek drops the entries before the next position, and returns an error if the next position is missing.
func (l *Log) seek() error {
	h := &l.history
	for h.ready() {
		first := h.held[0]
		switch {
		case first.index < l.next, l.anywhere && (first.missing || isUnusable(first)):
			h.pop()
		case first.missing:
			return &GapError{From: l.next, To: first.index}
		case !l.anywhere && first.index > l.next:
			return &GapError{From: l.next, To: first.index - 1}
		case h.anchor.Position != 0: // the entry at the anchor, before l.next, is missing
			return &GapError{From: l.next, To: l.next - 1}
		default:
			return nil
		}
	}
	return nil
}

// ready reports whether the first item is committed and not before the anchor.
func (h *history) ready() bool {
	return len(h.held) > 0 && h.held[0].index <= h.commit && h.commit >= h.anchor.Position
}

func addToBatch(b *segment.Batch, it item, request bool) {
	if b.First == 0 {
		b.First = it.index
	}
	b.Last = it.index
	if request {
		b.Requests = append(b.Requests, segment.Record{
			Kind: segment.Request, Position: it.index, Term: it.term, Data: it.data,
		})
	}
}

// Skip makes the log continue with the entry that follows the one named by to, the last stored one. The entry named by to
// must be the same in this log. If it is another one, Skip returns ErrForked or, if the entry has not been read yet, Read
// or Take does later. Skip never makes Take repeat an entry. With the zero End it does nothing.
func (l *Log) Skip(to segment.End) error {
	if l.err != nil || to.Position == 0 {
		return l.err
	}
	if !l.anywhere && to.Position < l.next {
		if to.Position == l.end.Position && to != l.end {
			l.err = fmt.Errorf("%w: entry %d of term %d is not the one of term %d that was stored",
				ErrForked, to.Position, l.end.Term, to.Term)
		}
		return l.err
	}
	l.next, l.anywhere = to.Position+1, false
	l.history.setAnchor(to)
	l.err = l.history.err
	return l.err
}

// Resume continues, after a *GapError, at the first position that the log has and that is not before from.
func (l *Log) Resume(from uint64) {
	l.history.anchor = segment.End{}
	l.next, l.anywhere = max(l.next, from), true
}
