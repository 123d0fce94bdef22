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

// history is the raft log as far as it has been read and not been taken. It is pure: records go in, and committed
// entries come out.
//
// A leader that was cut off has entries on its disk that no other member has. They may later lie below its commit
// index, after it has received a snapshot: that replaces its log and leaves only a record in it. So
//   - an entry i discards everything held from i on,
//   - a snapshot (S, T) whose entry S is not held with term T discards everything that is not known to be committed,
//     and leaves a hole below: an item that is missing,
//   - a commit index counts only together with the term of its source (see acceptCommit).
//
// Holes never leave. The entries above a hole do if the caller asks for them.
type history struct {
	held   []item // ascending, without gaps: missing entries are an item too
	floor  item   // the last item that has left, without its data
	commit uint64 // everything up to here is committed
	loose  bool   // the next entry may have any index: nothing was read, or files are missing
	bytes  int64  // of data held

	anchor segment.End // zero, or the expected entry at its position; entries before it are not needed
	err    error       // a committed entry differs from the expected one
}

// item is an entry, or a run of missing entries that ends at index. The term of a missing entry is 0 if unknown.
type item struct {
	index, term uint64
	kind        raftpb.EntryType
	data        []byte
	missing     bool
}

// claim is a commit index with the term of its source. The term is not lower than that of any leader the source had
// heard of when it learned of the commit.
type claim struct {
	index, term uint64
}

// errTermFalls and errEntriesMissing are damage that no checksum detects.
var (
	errTermFalls      = errors.New("terms decrease along the log")
	errEntriesMissing = errors.New("entries are missing")
)

// add adds an entry that was read.
func (h *history) add(e *raftpb.Entry) error {
	i := e.GetIndex()
	if i <= h.commit {
		return fmt.Errorf("%w: entry %d is written again, but everything up to %d was committed", ErrForked, i, h.commit)
	}
	// A snapshot that arrived and was lost in a crash has no effect: the log continues below it.
	mayJump := h.dropFrom(i) || h.loose
	last := h.last()
	if i > last.index+1 {
		if !mayJump {
			return fmt.Errorf("entry %d follows entry %d: %w", i, last.index, errEntriesMissing)
		}
		h.held = append(h.held, item{index: i - 1, missing: true})
	}
	if e.GetTerm() < last.term {
		return fmt.Errorf("entry %d of term %d follows entry %d of term %d: %w", i, e.GetTerm(), last.index, last.term, errTermFalls)
	}
	h.loose = false
	h.held = append(h.held, item{index: i, term: e.GetTerm(), kind: e.GetType(), data: e.GetData()})
	h.bytes += int64(len(e.GetData()))
	if i == h.anchor.Position {
		h.matchAnchor()
	}
	return nil
}

// snapshot adds a snapshot record. A member's own snapshot covers entries that it holds. A snapshot within a hole
// changes nothing either: if it replaced the log, the next entry is the one after it and discards the wrong ones.
func (h *history) snapshot(index, term uint64) {
	if index <= h.commit {
		return
	}
	it, ok := h.find(index)
	if ok {
		inside := it.missing && (it.index > index || it.term == 0)
		if inside || it.term == term {
			return
		}
	}
	h.dropFrom(h.commit + 1)
	h.held = append(h.held, item{index: index, term: term, missing: true})
}

// skipFiles handles missing files: they may have changed every entry that is not committed.
func (h *history) skipFiles() {
	h.dropFrom(h.commit + 1)
	h.loose = true
}

// acceptCommit processes a commit index that the member wrote to its log or reported. It returns whether all entries up
// to it are known to be committed.
//
// A claim counts only if the entry held at its index has exactly the claim's term. Proof: let t be the term of the
// entry committed at this index; the claim's term is t or later. Suppose that the held entry has the claim's term and
// that this is later than t. Then its leader would have had the committed entry at this index, which is a
// contradiction. So the terms are equal, one leader wrote both entries, and by raft's log matching property everything
// below is equal too. This holds whatever the order in which a snapshot, a commit index and the entries reach the disk
// (it differs between versions of etcd), and with stale entries below the commit index. The delay is short: a leader
// first commits an entry of its own term.
func (h *history) acceptCommit(c claim) bool {
	if c.index <= h.commit {
		return true
	}
	it, ok := h.find(c.index)
	if !ok || it.index != c.index || it.term != c.term || it.term == 0 {
		return false
	}
	h.commit = c.index
	h.checkAnchor()
	return true
}

// setAnchor sets the entry after which the log must continue.
func (h *history) setAnchor(end segment.End) {
	h.anchor = end
	h.matchAnchor()
	h.checkAnchor()
}

// matchAnchor commits the entry at the anchor if it is the expected one, which was committed elsewhere. A different
// entry may be stale; checkAnchor compares it once it is known to be committed.
func (h *history) matchAnchor() {
	it, ok := h.find(h.anchor.Position)
	if ok && !it.missing && it.end() == h.anchor {
		h.commit = max(h.commit, h.anchor.Position)
		h.checkAnchor()
	}
}

// checkAnchor drops committed entries before the anchor. Once the entry at the anchor is committed, it drops that too,
// or sets err if the entry differs from the expected one.
func (h *history) checkAnchor() {
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

// find returns the item at index or, if that entry is missing, the run that contains it.
func (h *history) find(index uint64) (item, bool) {
	k := sort.Search(len(h.held), func(k int) bool { return h.held[k].index >= index })
	if k == len(h.held) || index <= h.floor.index {
		return item{}, false
	}
	return h.held[k], true
}

func (h *history) last() item {
	n := len(h.held)
	if n > 0 {
		return h.held[n-1]
	}
	return h.floor
}

// dropFrom discards the items from index on, and reports whether one of them was a hole.
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

// dropTo removes everything up to index.
func (h *history) dropTo(index uint64) {
	for len(h.held) > 0 && h.held[0].index <= index {
		h.pop()
	}
}

// pop removes and returns the first item.
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
