package wal_test

import (
	"errors"
	"os"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/backup/wal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
)

// member models one member of a cluster under raft's rules, with a journal. truth is the cluster's committed log.
type member struct {
	*journal
	rt    *rapid.T
	truth []*raftpb.Entry // at index-1
	log   []*raftpb.Entry // its own, after base
	base  uint64          // the index of the snapshot that it received
	term  uint64
	known uint64 // its commit index
	wrote uint64 // the newest entry in the journal

	gotSnapshot bool
}

func (m *member) last() uint64 { return m.base + uint64(len(m.log)) }

// step executes one of the eight events of a member, numbered from 0; any other number does nothing.
func (m *member) step(n int) {
	switch n {
	case 0, 1:
		m.grow(m.draw(1, 10, "entries"), m.draw(0, 3, "new term") == 0)
	case 2, 3, 4:
		m.replicate()
	case 5:
		m.cutOff()
	case 6:
		m.receive()
	case 7:
		m.ownSnapshot()
	}
}

func (m *member) draw(from, to int, what string) int {
	return rapid.IntRange(from, to).Draw(m.rt, what)
}

// grow makes the cluster commit some entries, sometimes under a new leader.
func (m *member) grow(n int, newTerm bool) {
	term := m.term
	if newTerm {
		term++
	}
	k := len(m.truth)
	if k > 0 {
		term = max(term, m.truth[k-1].GetTerm())
	}
	for range n {
		m.truth = append(m.truth, put(uint64(len(m.truth))+1, term, "all"))
	}
}

// agree returns the highest index up to which its log is the cluster's.
func (m *member) agree() uint64 {
	i := m.base
	for k, e := range m.log {
		at := m.base + uint64(k)
		if at >= uint64(len(m.truth)) || m.truth[at].GetTerm() != e.GetTerm() || string(m.truth[at].Data) != string(e.Data) {
			break
		}
		i++
	}
	return i
}

// replicate sends it entries of the cluster, which replace those it has there.
func (m *member) replicate() {
	from := m.agree()
	to := min(from+uint64(m.draw(1, 8, "entries")), uint64(len(m.truth)))
	if from >= to {
		return
	}
	m.log = append(m.log[:from-m.base:from-m.base], m.truth[from:to]...)
	m.term = max(m.term, m.truth[to-1].GetTerm())
	m.write(to, m.truth[from:to])
}

// write writes entries and perhaps a commit index, which lags.
func (m *member) write(upTo uint64, entries []*raftpb.Entry) {
	m.known = max(m.known, upTo-uint64(m.draw(0, int(min(upTo-m.base, 9)), "lag")))
	commit := uint64(0)
	if m.draw(0, 2, "state") > 0 && m.known >= m.wrote {
		commit, m.wrote = m.known, m.known
	}
	m.save(m.term, commit, entries...)
}

// cutOff makes it lead alone, with entries that no other member gets. The others elect another leader.
func (m *member) cutOff() {
	from := m.agree()
	if from != uint64(len(m.truth)) || m.last() != from {
		return
	}
	m.term++
	var stale []*raftpb.Entry
	for i := range m.draw(1, 8, "stale") {
		stale = append(stale, put(from+1+uint64(i), m.term, "cut off"))
	}
	m.log = append(m.log, stale...)
	m.save(m.term, m.wrote, stale...)
	m.grow(m.draw(1, 12, "others"), true)
}

// receive gives it a snapshot, whose record and commit index arrive in either order.
func (m *member) receive() {
	if uint64(len(m.truth)) <= max(m.known, m.agree()) {
		return
	}
	s := uint64(m.draw(int(max(m.known, m.agree()))+1, len(m.truth), "snapshot"))
	term := m.truth[s-1].GetTerm()
	m.term = max(m.term, m.truth[len(m.truth)-1].GetTerm())
	order := m.draw(0, 2, "order")
	m.gotSnapshot = true
	if order == 0 {
		m.save(m.term, s)
	}
	m.snapshot(s, term)
	if order == 2 { // it crashes, and continues without the snapshot
		return
	}
	m.save(m.term, s)
	m.base, m.log, m.known, m.wrote = s, nil, s, s
}

func (m *member) ownSnapshot() {
	if m.known > 0 && m.known > m.base {
		s := uint64(m.draw(int(m.base)+1, int(m.known), "own snapshot"))
		m.snapshot(s, m.truth[s-1].GetTerm())
	}
}

// TestAnyHistory checks, for random histories of a member, that Take returns the entries that the cluster committed, in
// order, or a gap.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		ok(rt, err)
		m := &member{journal: newJournal(rt, dir), rt: rt, term: 1}
		defer m.Close()
		l := open(rt, dir, segment.End{})
		defer l.Close()
		next, anywhere := uint64(1), true
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			step := m.draw(0, 9, "step")
			if step == 8 {
				l.Confirm(m.known, m.term)
			} else {
				m.step(step)
			}
			if m.draw(0, 1, "read") == 0 {
				next, anywhere = m.follow(l, next, anywhere)
			}
		}
		// In the end it catches up, and every entry comes out.
		m.grow(3, true)
		for m.agree() < uint64(len(m.truth)) {
			m.replicate()
		}
		m.known = uint64(len(m.truth))
		if !l.Confirm(m.known, m.term) {
			next, anywhere = m.follow(l, next, anywhere)
		}
		next, _ = m.follow(l, next, anywhere)
		if next != m.known+1 {
			rt.Fatalf("what came out ends before %d, want %d", next, m.known+1)
		}
	})
}

// follow takes everything, from next on or from anywhere after it, and compares it with the truth.
func (m *member) follow(l *wal.Log, next uint64, anywhere bool) (uint64, bool) {
	readAll(m.rt, l)
	for {
		got, end, err := takeAll(m.rt, l)
		if len(got) > 0 {
			first := got[0].Position
			if first != next && !(anywhere && first > next) {
				m.rt.Fatalf("entry %d came, want %d", first, next)
			}
			same(m.rt, got, m.truth[first-1:min(end.Position, uint64(len(m.truth)))])
			next, anywhere = end.Position+1, false
		}
		var gap *wal.GapError
		if !errors.As(err, &gap) {
			ok(m.rt, err)
			return next, anywhere
		}
		if gap.From != next || gap.To < gap.From || gap.To > uint64(len(m.truth)) || !m.gotSnapshot {
			m.rt.Fatalf("a gap from %d to %d, at %d of %d", gap.From, gap.To, next, len(m.truth))
		}
		next, anywhere = gap.To+1, true
		l.Resume(next)
	}
}
