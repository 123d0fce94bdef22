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

// history is the part of the raft log that was read and not taken yet. It is pure: records go in, and committed entries
// come out.
//
// A leader that was cut off has entries on its disk that no other member has. Later they may lie below its commit index:
// it has received a snapshot that replaced its log, and of this its disk shows only a snapshot record. So
//   - an entry i discards everything held from i on,
//   - a snapshot (S, T) whose entry S is not held with term T discards everything that is not known to be committed,
//     and leaves a hole, which is a missing item, up to S,
//   - a commit index counts only together with the term of its source (see acceptCommit).
//
// A hole is never taken. The entries above it are, if the caller asks for them with Resume or Skip.
type history struct {
	held   []item // ascending, without gaps: missing entries are an item too
	floor  item   // the last item that was removed from the front of held, without its data
	commit uint64 // everything up to here is committed
	loose  bool   // the next entry may have any index: nothing was read, or files are missing
	bytes  int64  // of data held

	anchor segment.End // the entry after which the log must continue; entries before it are not needed; zero: any
	err    error       // the committed entry at the anchor's position is not the anchor
}

// item is an entry, or a run of missing entries that ends at index. The term of a missing entry is 0 if unknown.
type item struct {
	index, term uint64
	kind        raftpb.EntryType
	data        []byte
	missing     bool
}

// claim is a commit index with the term of its source, the member. The term is not lower than that of any leader known
// to the member when it learned of the commit.
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
	// i may lie inside a hole: the member lost the snapshot in a crash, so its log continues below the snapshot.
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

// snapshot adds a snapshot record. It changes nothing if the snapshot is the member's own, which ends at an entry that the
// member has. It changes nothing within a hole either: if the snapshot replaced the log, the next entry follows it and
// discards the wrong ones.
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

// skipFiles drops all entries that are not committed: files are missing, which may have overwritten any of them.
func (h *history) skipFiles() {
	h.dropFrom(h.commit + 1)
	h.loose = true
}

// acceptCommit processes a commit index that the member wrote to its log or reported. It reports whether all entries up
// to this index are known to be committed.
//
// A claim counts only if the entry held at its index has exactly the claim's term. Proof: let t be the term of the
// entry committed at this index; the claim's term is t or later. Suppose that the held entry has the claim's term and
// that this term is later than t. The leader of the later term had the committed entry, of term t, at this index, and
// not the held one: a contradiction. So the terms are equal, one leader wrote both entries, and by raft's log matching
// property everything below is equal too. This holds whatever the order in which a snapshot, a commit index and the
// entries reach the disk (it differs between versions of etcd), and with stale entries below the commit index. The
// delay is short: a leader first commits an entry of its own term.
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

// matchAnchor marks the entry at the anchor's position as committed if it is the anchor, because a stored entry was
// committed. A different entry may be stale; checkAnchor compares it once it is known to be committed.
func (h *history) matchAnchor() {
	it, ok := h.find(h.anchor.Position)
	if ok && !it.missing && it.end() == h.anchor {
		h.commit = max(h.commit, h.anchor.Position)
		h.checkAnchor()
	}
}

// checkAnchor drops committed entries before the anchor. Once the entry at the anchor's position is committed,
// checkAnchor drops it too, or sets err if it is not the anchor.
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

// find returns the item at index or, if its entry is missing, the run of missing entries that contains it.
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
	h.held[0] = item{} // frees the data, which the slice's array would keep
	h.held = h.held[1:]
	h.bytes -= int64(len(it.data))
	h.floor = item{index: it.index, term: it.term}
	return it
}

func (it item) end() segment.End {
	sum := sha256.Sum256(it.data)
	return segment.End{Position: it.index, Term: it.term, Digest: hex.EncodeToString(sum[:])}
}
