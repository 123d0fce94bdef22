package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// The victims under an archive.
const (
	theAgent  = "agent"
	theMember = "member"
	theStore  = "store"
)

// victims returns each kind of victim several times, in random order.
func victims(random *rand.Rand, each int) (all []string) {
	for _, victim := range []string{theAgent, theMember, theStore} {
		all = append(all, slices.Repeat([]string{victim}, each)...)
	}
	random.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all
}

func TestKilledArchive(t *testing.T) {
	if testing.Short() {
		return
	}
	t.Logf("seed %d", seed(t))
	for by, each := range map[string]int{byWAL: 2, byWatch: 2, byService: 2} {
		t.Run(by, func(t *testing.T) {
			killArchive(t, servers.Options{}, 1, by, each, rand.New(rand.NewPCG(seed(t), 7)))
		})
	}
}

// TestSoakKilledArchive kills twelve times in each of nine fleets, with all kinds of archivers: for every version one
// member with its agent, and three with two agents.
func TestSoakKilledArchive(t *testing.T) {
	if !soak.On() {
		return
	}
	t.Logf("seed %d", seed(t))
	for n := range 9 {
		round, version := n/len(servers.Versions), n%len(servers.Versions)
		o, agents := servers.Options{Version: servers.Versions[version]}, 1
		if (round+version)%2 == 0 {
			o.Members, agents = 3, 2
		}
		for _, by := range []string{byWAL, byWatch, byService} {
			name := fmt.Sprintf("%d %s %s members=%d agents=%d", n, by, o.Version, max(1, o.Members), agents)
			t.Run(name, func(t *testing.T) {
				killArchive(t, o, agents, by, 4, rand.New(rand.NewPCG(seed(t), 7+uint64(n))))
			})
		}
	}
}

// killArchive kills each victim several times, under load. It compares the agents' claims with the stored log, twice
// while one of them is dead, and at the end.
func killArchive(t *testing.T, o servers.Options, agents int, by string, each int, random *rand.Rand) {
	t.Helper()
	f := fleetOf(t, o, agents, by, repo(filepath.Join(t.TempDir(), "repo")), random)
	kills := map[string]int{}
	var middle time.Time
	for n, victim := range victims(random, each) {
		if n == 3*each/2 {
			middle = time.Now()
		}
		f.load.flows(t)
		f.catchUp(t) // or it might be killed before it has reported anything new
		f.pause(time.Second / 2)
		f.killVictim(t, victim, kills[victim]%2 == 1)
		kills[victim]++
	}
	f.load.flows(t)
	f.load.end(t)
	f.catchUp(t)
	f.nothingLost(t)
	f.inTheMiddle(t, middle)
	for _, a := range f.agents {
		a.lookAway()
		a.Stop(t)
	}
	f.verify(t)
	noProcess(t)
	t.Logf("kills: %v", kills)
}

// killVictim kills one victim. With look, it checks the repository while an agent is dead.
func (f *fleet) killVictim(t *testing.T, victim string, look bool) {
	t.Helper()
	working := agent.Working(t, f.each()...)
	switch victim {
	case theAgent:
		f.killAgent(t, working, func() {
			if look {
				f.nothingLost(t)
			}
		})
	case theMember:
		f.killMember(t, working)
	case theStore:
		f.cutStore(t, working)
	}
}

// inTheMiddle restores to a time at which there was load: every write acknowledged before the moment in the plan is
// there, and none that began after the time.
func (f *fleet) inTheMiddle(t *testing.T, at time.Time) {
	t.Helper()
	to := []string{"--to", at.Format(time.RFC3339Nano)}
	dry := append(to, "--identity", f.key.file, "--dry-run", "--output-dir", filepath.Join(t.TempDir(), "restored"))
	var plan struct{ Reach plan.Reach }
	run(t, f.repo.flags("restore", dry...)...).Succeeded(t, &plan)
	image := f.restore(t, to...)
	f.holds(t, image, plan.Reach.NotBefore)
	f.isTrue(t, image)
	attempts := f.load.snapshot()
	for _, kv := range image.KVs {
		begun := attempts[string(kv.Key)].begun
		if begun.After(at) {
			t.Errorf("restored to %v: %s was written at %v", at, kv.Key, begun)
		}
	}
}

// live returns the cluster's key space at a revision.
func live(t *testing.T, c *servers.Cluster, revision int64) database.Image {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	all, err := c.Client(t).Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(revision))
	if err != nil {
		t.Fatalf("read the key space at revision %d: %v", revision, err)
	}
	return database.Image{Revision: revision, KVs: all.Kvs}
}
