package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/restore/disk"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// raft is a cluster as raft lets it behave: each member's log is the list of its entries' terms.
type raft struct {
	rt      *rapid.T
	logs    [][]uint64
	knows   []uint64 // each one's commit index
	term    uint64
	leader  int
	commits uint64
	truth   []uint64 // the committed entries
}

func (r *raft) upToDate(a, b int) bool {
	last := func(log []uint64) uint64 {
		if len(log) == 0 {
			return 0
		}
		return log[len(log)-1]
	}
	x, y := last(r.logs[a]), last(r.logs[b])
	return x > y || x == y && len(r.logs[a]) >= len(r.logs[b])
}

// elect elects a leader for whom a majority can vote.
func (r *raft) elect() {
	candidate := rapid.IntRange(0, len(r.logs)-1).Draw(r.rt, "candidate")
	votes := 0
	for i := range r.logs {
		if r.upToDate(candidate, i) {
			votes++
		}
	}
	if 2*votes > len(r.logs) {
		r.term++
		r.leader = candidate
		r.logs[candidate] = append(slices.Clone(r.logs[candidate]), r.term)
	}
}

// replicate copies a part of the leader's log to a follower, with the commit index.
func (r *raft) replicate() {
	to := rapid.IntRange(0, len(r.logs)-1).Draw(r.rt, "follower")
	lead, own := r.logs[r.leader], r.logs[to]
	if to == r.leader || len(lead) == 0 || len(own) > 0 && own[len(own)-1] > r.term {
		return
	}
	same := 0
	for same < min(len(lead), len(own)) && lead[same] == own[same] {
		same++
	}
	n := rapid.IntRange(same, len(lead)).Draw(r.rt, "up to")
	if n > same {
		r.logs[to] = slices.Clone(lead[:n])
	}
	r.knows[to] = max(r.knows[to], min(uint64(n), r.knows[r.leader]))
	for at := uint64(len(lead)); at > r.commits && lead[at-1] == r.term; at-- {
		holders := 0
		for _, log := range r.logs {
			if uint64(len(log)) >= at && log[at-1] == r.term {
				holders++
			}
		}
		if 2*holders > len(r.logs) {
			r.commits, r.truth = at, slices.Clone(lead[:at])
			if rapid.Bool().Draw(r.rt, "the leader knows") {
				r.knows[r.leader] = at
			}
			return
		}
	}
}

// After any history, a majority of the disks restores everything that was committed, and everything that a plan calls certain
// was committed.
func TestSalvageLosesNothingThatWasCommitted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const n = 3
		r := &raft{rt: rt, logs: make([][]uint64, n), knows: make([]uint64, n), term: 1}
		r.elect()
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				r.elect()
			case 1, 2, 3:
				if r.term > 1 {
					r.logs[r.leader] = append(slices.Clone(r.logs[r.leader]), r.term)
				}
			default:
				r.replicate()
			}
		}
		var disks []disk.Disk
		for i, log := range r.logs {
			if len(log) == 0 || rapid.IntRange(0, 3).Draw(rt, "lost") == 0 {
				continue
			}
			d := diskOf(i+1, 1, uint64(len(log)), r.knows[i])
			d.Databases[0].Index, d.Databases[0].Term = max(1, rapid.Uint64Range(0, r.knows[i]).Draw(rt, "applied")), 0
			d.Log.Terms = nil
			for k, term := range log {
				d.Log.Terms = append(d.Log.Terms, disk.Place{Position: uint64(k + 1), Term: term})
			}
			d.Log.Last.Term, d.Log.Last.Digest = log[len(log)-1], fmt.Sprint(log)
			if r.knows[i] > 0 {
				disks = append(disks, d)
			}
		}
		if len(disks) == 0 {
			return
		}
		p, err := plan.New(catalog.Catalog{}, plan.Target{Disks: &plan.Disks{Found: disks}}, plan.Layout{Token: "t"}, now)
		if err != nil {
			rt.Fatal(err)
		}
		upTo, commit, log := p.Salvage.Database.Index, p.Salvage.Database.Index, []uint64(nil)
		l := p.Salvage.Log
		if l != nil {
			upTo, commit = l.UpTo, l.Commit
			log = r.logs[slices.IndexFunc(stored.ThreeMembers(), func(m catalog.Member) bool { return strings.HasSuffix(l.Dir, m.Name[1:]) })]
		}
		if commit > r.commits {
			rt.Fatalf("up to %d is called certain, committed was %d", commit, r.commits)
		}
		if p.Salvage.Majority != (len(disks) >= 2) {
			rt.Fatalf("majority %t with %d disks", p.Salvage.Majority, len(disks))
		}
		if p.Salvage.Majority && upTo < r.commits {
			rt.Fatalf("a majority gives %d of %d", upTo, r.commits)
		}
		for i := range min(upTo, r.commits) {
			if log != nil && log[i] != r.truth[i] {
				rt.Fatalf("position %d is of term %d, %d was committed", i+1, log[i], r.truth[i])
			}
		}
	})
}
