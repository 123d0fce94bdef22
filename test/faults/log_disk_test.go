package faults

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// TestFullDiskUnderAnArchive fills the repository's disk twice: an agent reports it, and one that is killed meanwhile
// is succeeded by another. With free space the agent continues, and nothing is lost. No incomplete segment is ever
// listed.
func TestFullDiskUnderAnArchive(t *testing.T) {
	if testing.Short() || !inOwnMounts(t) {
		return
	}
	t.Logf("seed %d", seed(t))
	d := newDisk(t, "32m")
	f := fleetOf(t, servers.Options{}, 1, byWAL, repo(d), rand.New(rand.NewPCG(seed(t), 8)))
	for round := range 2 {
		f.load.flows(t)
		f.catchUp(t)
		d.fill(t, f.random.Int64N(128<<10))
		f.agents[0].Until(t, "it notices that the disk is full", func(s document.Agent) bool { return away(s) && s.Failures > 1 })
		f.load.flows(t)
		f.nothingLost(t)
		if round == 1 {
			f.killAgent(t, 0, nil)
			f.agents[0].Until(t, "it waits for the store", away)
		}
		err := os.Remove(filepath.Join(string(d), "filler"))
		if err != nil {
			t.Fatal(err)
		}
		f.catchUp(t)
		f.nothingLost(t)
	}
	f.load.end(t)
	f.catchUp(t)
	f.nothingLost(t)
}

// away reports whether the agent waits and names the full disk as the reason.
func away(s document.Agent) bool {
	return s.State == document.AgentWaiting && strings.Contains(s.Problem, noSpace)
}
