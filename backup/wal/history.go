package wal

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sort"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// history is the raft log as far as it has been read and not been taken. It is pure: what records say goes in, what is
// committed comes out.
//
// A member that led and was cut off has entries on its disk that nobody else has. They may lie below its commit index
// later on, when it was given a snapshot: that replaces its log and leaves no trace in it but a record. So
//   - an entry i discards all that is held from i on,
//   - a snapshot (S, T) whose entry S is not held with term T discards all that is not known to be committed, and what
//     lies below is a hole: an item that is missing,
//   - a commit index counts only together with the term of whoever says it (see vouch).
//
// Holes never leave. What is above one does, for whoever asks for it.
type history struct {
	held   []item // ascending, without gaps: what is not there is an item that is missing
	floor  item   // the last that has left; its data is not kept
	commit uint64 // all up to here is committed
	loose  bool   // the next entry may have any index: nothing was read, or files are missing
	bytes  int64  // of data held

	anchor segment.End // zero, or what the entry there must be; what lies before it is not needed
	err    error       // a committed entry turned out to be another one
}

// item is an entry, or a stretch of entries that ends at index and is missing; then the term at index is 0 if not known.
type item struct {
	index, term uint64
	kind        raftpb.EntryType
	data        []byte
	missing     bool
}

// word is a commit index with the term of whoever said it, which is not lower than that of any leader he had heard of
// when he learnt of the commit.
type word struct {
	index, term uint64
}

// errFalls and errSkips are damage that no checksum sees.
var (
	errFalls = errors.New("terms fall along the log")
	errSkips = errors.New("entries are missing")
)

// add takes in an entry that was read.
func (h *history) add(e *raftpb.Entry) error {
	i := e.GetIndex()
	if i <= h.commit {
		return fmt.Errorf("%w: entry %d is written again, and up to %d all was committed", ErrForked, i, h.commit)
	}
	// A snapshot that came in and was lost in a crash has no effect: the log goes on below it.
	mayJump := h.dropFrom(i) || h.loose
	last := h.last()
	if i > last.index+1 {
		if !mayJump {
			return fmt.Errorf("entry %d follows entry %d: %w", i, last.index, errSkips)
		}
		h.held = append(h.held, item{index: i - 1, missing: true})
	}
	if e.GetTerm() < last.term {
		return fmt.Errorf("entry %d of term %d follows entry %d of term %d: %w", i, e.GetTerm(), last.index, last.term, errFalls)
	}
	h.loose = false
	h.held = append(h.held, item{index: i, term: e.GetTerm(), kind: e.GetType(), data: e.GetData()})
	h.bytes += int64(len(e.GetData()))
	if i == h.anchor.Position {
		h.meet()
	}
	return nil
}

// snapshot takes in a snapshot record. A member's own snapshot is of entries that it holds. So is one that lies in a hole
// already: if it replaced the log, the next entry is the one behind it and discards what is wrong.
func (h *history) snapshot(index, term uint64) {
	if index <= h.commit {
		return
	}
	if it, ok := h.find(index); ok {
		inside := it.missing && (it.index > index || it.term == 0)
		if inside || it.term == term {
			return
		}
	}
	h.dropFrom(h.commit + 1)
	h.held = append(h.held, item{index: index, term: term, missing: true})
}

// jump says that files are missing: anything may have happened in them to what is not committed.
func (h *history) jump() {
	h.dropFrom(h.commit + 1)
	h.loose = true
}

// vouch takes in a commit index that the member wrote to its log or told, and returns whether all up to it is known to
// be committed.
//
// It counts only if the entry held there has the very term of whoever says it. Let t be the term of the entry that is
// committed at this index; the term of the word is t or later. If the entry held has the word's term and that were later
// than t, its leader would have had the committed one in its place. So the terms are equal, one leader wrote both, and
// raft's log matching makes everything below equal too. Neither the order in which a snapshot, a commit index and the
// entries reach the disk (it differs between versions of etcd) nor a stale entry below the commit can deceive it. Nothing
// waits for long: a leader commits an entry of its own term first.
func (h *history) vouch(w word) bool {
	if w.index <= h.commit {
		return true
	}
	it, ok := h.find(w.index)
	if !ok || it.index != w.index || it.term != w.term || it.term == 0 {
		return false
	}
	h.commit = w.index
	h.settle()
	return true
}

// expect makes an entry the one that the log must go on from.
func (h *history) expect(end segment.End) {
	h.anchor = end
	h.meet()
	h.settle()
}

// meet finds out if the entry at the anchor is the one that was committed elsewhere. If not it may be stale, and is judged
// once it is known to be committed.
func (h *history) meet() {
	it, ok := h.find(h.anchor.Position)
	if ok && !it.missing && it.end() == h.anchor {
		h.commit = max(h.commit, h.anchor.Position)
		h.settle()
	}
}

// settle lets go of what is committed and lies before the anchor, and judges the anchor when its time has come.
func (h *history) settle() {
	at := h.anchor.Position
	if at == 0 || h.err != nil {
		return
	}
	if h.commit < at {
		h.dropTo(h.commit)
		return
	}
	it, ok := h.find(at)
	if !ok || it.missing {
		return
	}
	if it.end() != h.anchor {
		h.err = fmt.Errorf("%w: entry %d of term %d is not the one of term %d that was stored", ErrForked, at, it.term, h.anchor.Term)
		return
	}
	h.dropTo(at)
	h.anchor = segment.End{}
}

// find returns the item that holds index or, if that is missing, the stretch that it lies in.
func (h *history) find(index uint64) (item, bool) {
	k := sort.Search(len(h.held), func(k int) bool { return h.held[k].index >= index })
	if k == len(h.held) || index <= h.floor.index {
		return item{}, false
	}
	return h.held[k], true
}

func (h *history) last() item {
	if n := len(h.held); n > 0 {
		return h.held[n-1]
	}
	return h.floor
}

// dropFrom discards what is held from index on, and says whether a hole was among it.
func (h *history) dropFrom(index uint64) (hole bool) {
	n := len(h.held)
	for ; n > 0 && h.held[n-1].index >= index; n-- {
		hole = hole || h.held[n-1].missing
		h.bytes -= int64(len(h.held[n-1].data))
		h.held[n-1] = item{}
	}
	h.held = h.held[:n]
	return hole
}

// dropTo lets everything up to index go.
func (h *history) dropTo(index uint64) {
	for len(h.held) > 0 && h.held[0].index <= index {
		h.pop()
	}
}

// pop lets the first item go.
func (h *history) pop() item {
	it := h.held[0]
	h.held[0] = item{} // or the slice would keep the data alive
	h.held = h.held[1:]
	h.bytes -= int64(len(it.data))
	h.floor = item{index: it.index, term: it.term}
	return it
}

func (it item) end() segment.End {
	sum := sha256.Sum256(it.data)
	return segment.End{Position: it.index, Term: it.term, Digest: hex.EncodeToString(sum[:])}
}
