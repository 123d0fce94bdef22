package faults

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/process"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// claims are the furthest positions that agents have ever reported as stored.
type claims struct {
	mu        sync.Mutex
	confirmed time.Time // everything acknowledged before is stored
	durable   uint64    // positions up to here are stored
}

func (c *claims) hear(s document.Agent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.durable = max(c.durable, s.Durable)
	if s.ConfirmedAt.After(c.confirmed) {
		c.confirmed = s.ConfirmedAt
	}
}

func (c *claims) most() (confirmed time.Time, durable uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.confirmed, c.durable
}

// observed is an agent whose status is requested again and again, so that its last claim before its death is known.
type observed struct {
	*agent.Agent
	stop      context.CancelFunc
	observing sync.WaitGroup
}

const observeEvery = 20 * time.Millisecond

func observe(t testing.TB, a *agent.Agent, into *claims) *observed {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	o := &observed{Agent: a, stop: stop}
	o.observing.Go(func() {
		for {
			s, err := a.Status()
			if err == nil {
				into.hear(s)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(observeEvery):
			}
		}
	})
	t.Cleanup(o.lookAway)
	return o
}

func (o *observed) lookAway() {
	o.stop()
	o.observing.Wait()
}

// fleet is a cluster under load, with agents or services that archive into one repository.
type fleet struct {
	cluster *servers.Cluster
	repo    repo
	key     keyPair
	load    *load
	random  *rand.Rand
	claims  claims
	agents  []*observed
	by      string
}

// The kinds of archivers.
const (
	byWAL     = "wal" // agents next to the members of the same number
	byWatch   = "watch"
	byService = "service"
)

// fleetOf starts a cluster, agents and the load, and waits until a point can be restored.
func fleetOf(t *testing.T, o servers.Options, agents int, by string, to repo, random *rand.Rand) *fleet {
	t.Helper()
	f := &fleet{
		cluster: servers.Start(t, o), repo: to, key: newKey(t, filepath.Join(t.TempDir(), "key.txt")), random: random,
		agents: make([]*observed, agents), by: by,
	}
	for i := range f.agents {
		f.start(t, i)
	}
	f.load = newLoad(t, f.cluster)
	f.catchUp(t)
	for start := time.Now(); len(f.repo.list(t).Windows) == 0; time.Sleep(process.Pause(start)) {
		if time.Since(start) > hangs {
			t.Fatalf("nothing can be restored: %+v", f.repo.list(t))
		}
	}
	return f
}

func (f *fleet) start(t *testing.T, i int) {
	t.Helper()
	if f.by == byService {
		s := served{f.repo, f.cluster.Endpoints(), f.key.recipient, `schedule: {cron: "@every 10s"}, archive: {flush: 200ms}`}
		f.agents[i] = observe(t, agent.Serve(t, nil, s.config(t)), &f.claims)
		return
	}
	env := []string{"DR_REPO=file://" + string(f.repo), "DR_CLUSTER=" + clusterName, "DR_RECIPIENT=" + f.key.recipient}
	dir := f.cluster.Members[i].DataDir
	if f.by == byWatch {
		dir = ""
	}
	a := agent.Start(t, env, dir, "--endpoints", strings.Join(f.cluster.Endpoints(), ","))
	f.agents[i] = observe(t, a, &f.claims)
}

func (f *fleet) each() (all []*agent.Agent) {
	for _, o := range f.agents {
		all = append(all, o.Agent)
	}
	return all
}

// catchUp waits until an agent has reported that every write acknowledged before now is stored, and the fleet has
// recorded it.
func (f *fleet) catchUp(t *testing.T) {
	t.Helper()
	now := time.Now()
	agent.CatchUp(t, f.each()...)
	for end := now.Add(hangs); ; time.Sleep(observeEvery) {
		confirmed, _ := f.claims.most()
		if confirmed.After(now) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("an agent has claimed it, and nobody has heard")
		}
	}
}

// pause is not for an event, but to kill somewhere else each time.
func (f *fleet) pause(most time.Duration) { time.Sleep(time.Duration(f.random.Int64N(int64(most)))) }

// killAgent kills one agent, calls look while it is dead if look is not nil, and starts another in its place.
func (f *fleet) killAgent(t *testing.T, i int, look func()) {
	t.Helper()
	f.agents[i].Kill(t)
	f.agents[i].lookAway()
	if look != nil {
		look()
	}
	f.start(t, i)
}

func (f *fleet) killMember(t *testing.T, i int) {
	t.Helper()
	f.cluster.Kill(t, i)
	f.pause(time.Second)
	f.cluster.Restart(t, i)
}

// cutStore limits the size of the files that agents can write to a few bytes, until one has noticed. Reading still
// works, which makes no difference to an agent in the middle of its work. One in three dies of it.
func (f *fleet) cutStore(t *testing.T, working int) {
	t.Helper()
	before := f.agents[working].Until(t, "it answers", func(document.Agent) bool { return true })
	bytes := f.random.Uint64N(4 << 10)
	for _, a := range f.agents {
		limitFiles(t, a.PID(), bytes)
	}
	fails := func(s document.Agent) bool { return s.Failures > before.Failures }
	f.agents[working].Until(t, "it notices that the store is away", fails)
	f.pause(2 * time.Second)
	if f.random.IntN(3) == 0 {
		f.killAgent(t, working, nil)
	}
	for _, a := range f.agents {
		limitFiles(t, a.PID(), unix.RLIM_INFINITY)
	}
}

// limitFiles makes every write of the process fail that makes a file longer than so many bytes; the part that fits is
// written.
func limitFiles(t *testing.T, pid int, bytes uint64) {
	t.Helper()
	err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil)
	if err != nil {
		t.Fatalf("limit the files of process %d: %v", pid, err)
	}
}

// restore restores one member, and returns its key space.
func (f *fleet) restore(t *testing.T, args ...string) database.Image {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "m1")
	args = append([]string{"--name", "m1", "--data-dir", dir, "--old-is-dead",
		"--initial-cluster", "m1=http://127.0.0.1:2380"}, args...)
	var r struct{ Revision int64 }
	run(t, f.repo.flags("restore", append(args, "--identity", f.key.file)...)...).Succeeded(t, &r)
	image, _, err := database.Newest(filepath.Join(dir, "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Revision != image.Revision {
		t.Errorf("the restore tells of revision %d, the database has %d", r.Revision, image.Revision)
	}
	return image
}

// nothingLost restores the end of the log, and fails the test unless it contains everything that agents had reported as
// stored, and nothing that the cluster does not have.
func (f *fleet) nothingLost(t *testing.T) {
	t.Helper()
	confirmed, durable := f.claims.most()
	log := f.verify(t)
	if len(log.Windows) == 1 && log.Windows[0].To.Position < durable {
		t.Errorf("an agent has claimed position %d, the log ends at %d", durable, log.Windows[0].To.Position)
	}
	image := f.restore(t)
	f.holds(t, image, confirmed)
	f.isTrue(t, image)
}

// holds fails the test if a write that was acknowledged before the time is missing, or has another revision.
func (f *fleet) holds(t *testing.T, image database.Image, before time.Time) {
	t.Helper()
	revisions := map[string]int64{}
	for _, kv := range image.KVs {
		revisions[string(kv.Key)] = kv.ModRevision
	}
	var missing []string
	promised := 0
	for key, a := range f.load.snapshot() {
		if a.revision == 0 || !a.answered.Before(before) {
			continue
		}
		promised++
		if revisions[key] != a.revision {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 || promised == 0 {
		t.Errorf("restored at revision %d: of %d writes that were acknowledged before %v, %d are missing, as %q",
			image.Revision, promised, before, len(missing), missing[:min(len(missing), 5)])
	}
	t.Logf("restored at revision %d: %d writes, of which %d had been promised", image.Revision, len(image.KVs), promised)
}

// isTrue fails the test unless the image is the cluster's at that revision, and consists only of attempted writes, as
// they were acknowledged.
func (f *fleet) isTrue(t *testing.T, image database.Image) {
	t.Helper()
	attempts := f.load.snapshot()
	for _, kv := range image.KVs {
		a, tried := attempts[string(kv.Key)]
		if !tried || string(kv.Value) != valueOf(string(kv.Key)) || kv.CreateRevision != kv.ModRevision ||
			a.revision > 0 && a.revision != kv.ModRevision {
			t.Fatalf("restored: %v, which was tried: %v, %+v", kv, tried, a)
		}
	}
	found := live(t, f.cluster, image.Revision).Differences(image)
	if len(found) > 0 {
		t.Errorf("live first, restored second:\n%s", strings.Join(found, "\n"))
	}
}

// verify returns the result of dr archive verify, which has to find one complete history.
func (f *fleet) verify(t *testing.T) document.ArchiveVerify {
	t.Helper()
	var v document.ArchiveVerify
	run(t, f.repo.flags("archive", "verify", "--identity", f.key.file)...).Succeeded(t, &v)
	if v.Verdict != "passed" || v.Depth != "opened" || len(v.Windows) != 1 || len(v.Gaps)+len(v.Missing)+len(v.Damaged) > 0 {
		t.Errorf("dr archive verify: %+v", v)
	}
	lineages, err := filepath.Glob(filepath.Join(string(f.repo), clusterName, "log", "*"))
	if err != nil || len(lineages) != 1 {
		t.Errorf("there are the lineages %q, want one", lineages)
	}
	return v
}
