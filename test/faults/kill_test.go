package faults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// stage is where a run is killed: at one of the first events of that name, or a moment later.
type stage struct {
	name   string
	events int
	later  int // milliseconds at most; none for a stage that is over in a moment
}

var (
	backupStages = []stage{{"connect", 2, 20}, {"stream", 4, 200}, {"commit", 1, 0}}
	// The stage prove is over too fast to be hit: it only compares a hash that was made during check.
	restoreStages = []stage{{"fetch", 2, 100}, {"check", 1, 30}, {"build", 2, 30}, {"rename", 1, 0}}
)

// A victim of SIGKILL.
const (
	dr     = "dr"
	child  = "its child"
	family = "both"
)

// kills kills one verb again and again, until each stage was hit often enough.
type kills struct {
	random *rand.Rand
	stages []stage
	each   int // hits that each stage needs
	total  int // and all together
	hits   []int
	tries  int
}

func newKills(t *testing.T, stages []stage, total int) *kills {
	t.Helper()
	t.Logf("seed %d", seed(t))
	return &kills{random: rand.New(rand.NewPCG(seed(t), 5)), stages: stages, each: 2, total: total, hits: make([]int, len(stages))}
}

// more reports whether to continue. A run that ends before it is killed counts only as a try.
func (k *kills) more(t *testing.T) bool {
	t.Helper()
	sum, least := 0, slices.Min(k.hits)
	for _, n := range k.hits {
		sum += n
	}
	if sum >= k.total && least >= k.each {
		t.Logf("%v: %v hits in %d tries", k.stages, k.hits, k.tries)
		return false
	}
	k.tries++
	if k.tries > 20*k.total {
		t.Fatalf("%v: %v hits in %d tries", k.stages, k.hits, k.tries)
	}
	return true
}

// killOnce runs dr and kills the victim at an event of the stage that needs it most.
func (k *kills) killOnce(t *testing.T, victim string, args ...string) command.Output {
	t.Helper()
	s := k.stages[slices.Index(k.hits, slices.Min(k.hits))]
	p := start(t, args...)
	if p.Until(1+k.random.IntN(s.events), s.name) {
		// Not for an event, but to die somewhere else each time.
		time.Sleep(time.Duration(k.random.IntN(s.later+1)) * time.Millisecond)
		kill(t, p, victim)
	}
	o := p.Wait(t)
	if o.Code == 0 {
		return o
	}
	for i, s := range k.stages {
		if s.name == o.Stage || s.name == "fetch" && o.Stage == "ask" { // the stages before the first byte count as one
			k.hits[i]++
		}
	}
	return o
}

func kill(t *testing.T, p *command.Process, victim string) {
	t.Helper()
	switch victim {
	case dr:
		p.Signal(t, syscall.SIGKILL)
	case family:
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL) // all may have ended
	case child:
		for _, pid := range children(p.PID()) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// large is a server whose snapshot takes a while.
type large struct {
	server *servers.Cluster
	key    keyPair
}

const largeSize = 32 << 20

func newLarge(t *testing.T) large {
	t.Helper()
	l := large{servers.Start(t, servers.Options{}), newKey(t, filepath.Join(t.TempDir(), "key.txt"))}
	fillRandom(t, l.server.Client(t), 1, largeSize, 1000)
	return l
}

func TestKilledBackups(t *testing.T) {
	if testing.Short() {
		return
	}
	killBackups(t, 6)
}

func TestSoakKilledBackups(t *testing.T) {
	if !soak.On() {
		return
	}
	killBackups(t, 100)
}

func killBackups(t *testing.T, total int) {
	t.Helper()
	l := newLarge(t)
	r := repo(filepath.Join(t.TempDir(), "repo"))
	args := backupArgs(r, l.key, l.server.Endpoints())
	verified := map[catalog.ID]bool{}
	for k := newKills(t, backupStages, total); k.more(t); {
		k.killOnce(t, dr, args...)
		noProcess(t)
		before := r.leftovers(t)
		verifyNew(t, r, l.key, verified)
		run(t, args...).Succeeded(t, nil)
		verifyNew(t, r, l.key, verified)
		// The default grace is a day: younger objects may belong to a running backup.
		after := r.leftovers(t)
		for _, key := range before {
			if !slices.Contains(after, key) {
				t.Errorf("leftover %s went before its time", key)
			}
		}
	}
	left := r.leftovers(t)
	if len(left) == 0 {
		t.Error("no kill has left anything: none was in the middle of a stream")
	}
	waitPastLeftovers(t, r)
	run(t, append(args, "--grace", "1ms")...).Succeeded(t, nil)
	left = r.leftovers(t)
	if len(left) > 0 {
		t.Errorf("a short grace has left %q", left)
	}
	verifyNew(t, r, l.key, verified)
	onlyBackups(t, r)
}

// waitPastLeftovers waits until the time in the youngest leftover's name is over. Backups that follow each other within
// a second are named after the next seconds.
func waitPastLeftovers(t *testing.T, r repo) {
	t.Helper()
	for _, key := range r.leftovers(t) {
		id := catalog.ID(filepath.Base(filepath.Dir(key)))
		time.Sleep(time.Until(id.Started()))
	}
}

// verifyNew verifies every listed backup that was not listed before.
func verifyNew(t *testing.T, r repo, key keyPair, verified map[catalog.ID]bool) {
	t.Helper()
	list := r.list(t)
	for _, d := range list.Damaged {
		t.Errorf("%s is listed, and damaged: %s", d.ID, d.Message)
	}
	for _, b := range list.Backups {
		if !verified[b.ID] {
			run(t, r.flags("verify", string(b.ID), "--level", "hashed", "--identity", key.file)...).Succeeded(t, nil)
			verified[b.ID] = true
		}
	}
}

// onlyBackups fails the test if the repository has files that belong to no backup.
func onlyBackups(t *testing.T, r repo) {
	t.Helper()
	listed := map[string]bool{}
	for _, b := range r.list(t).Backups {
		listed[string(b.ID)] = true
	}
	for _, file := range files(t, string(r)) {
		id, name := filepath.Base(filepath.Dir(file)), filepath.Base(file)
		if !listed[id] && id != "leases" && name != "repository.json" || strings.HasPrefix(name, ".") {
			t.Errorf("%s belongs to no backup", file)
		}
	}
}

func TestKilledRestores(t *testing.T) {
	if testing.Short() {
		return
	}
	killRestores(t, 10)
}

func TestSoakKilledRestores(t *testing.T) {
	if !soak.On() {
		return
	}
	killRestores(t, 100)
}

// restores are restores of one backup for two members, repeated into the same place.
type restores struct {
	parent, target string
	args           []string
	peers          []string
	good           map[string]string // the result of an undisturbed restore
}

// newRestores takes a backup of a server, stops the server, and restores the backup once.
func newRestores(t *testing.T) *restores {
	t.Helper()
	l := newLarge(t)
	r := repo(filepath.Join(t.TempDir(), "repo"))
	backUp(t, r, l.key, l.server.Endpoints())
	l.server.Stop(t, 0)
	s := &restores{parent: t.TempDir(), peers: servers.FreeURLs(t, 2)}
	s.target = filepath.Join(s.parent, "restored")
	// With random tokens the restores would have different member ids, and could not be compared.
	s.args = r.flags("restore", "--identity", l.key.file, "--output-dir", s.target, "--initial-cluster-token", "faults",
		"--initial-cluster", fmt.Sprintf("m1=%s,m2=%s", s.peers[0], s.peers[1]))
	run(t, s.args...).Succeeded(t, nil)
	s.good = contents(t, s.target)
	s.clear(t)
	return s
}

func (s *restores) clear(t *testing.T) {
	t.Helper()
	err := os.RemoveAll(s.target)
	if err != nil {
		t.Fatal(err)
	}
}

// whole reports whether the target exists, and fails the test if it is incomplete.
func (s *restores) whole(t *testing.T) bool {
	t.Helper()
	_, err := os.Stat(s.target)
	if os.IsNotExist(err) {
		return false
	}
	got := contents(t, s.target)
	if !maps.Equal(got, s.good) {
		t.Errorf("%s is there in part:\n%v, want\n%v", s.target, got, s.good)
	}
	return true
}

// alone fails the test if any file is next to the target.
func (s *restores) alone(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(s.parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(s.target) {
			t.Errorf("%s was left beside the target", e.Name())
		}
	}
}

func killRestores(t *testing.T, total int) {
	t.Helper()
	s := newRestores(t)
	for k := newKills(t, restoreStages, total); k.more(t); {
		victim := []string{dr, dr, family, child}[k.random.IntN(4)]
		o := k.killOnce(t, victim, s.args...)
		if victim == child && o.Code != 0 {
			o.Failed(t, 1, "killed at stage")
			s.alone(t)
		}
		if k.random.IntN(2) == 0 {
			s.again(t, victim)
		} else {
			s.ended(t, o)
		}
		s.clear(t)
		run(t, s.args...).Succeeded(t, nil)
		if !s.whole(t) {
			t.Fatalf("the next restore has made nothing")
		}
		s.alone(t)
		s.clear(t)
	}
	run(t, s.args...).Succeeded(t, nil)
	s.boot(t)
}

// ended waits until no process is left, and checks the result.
func (s *restores) ended(t *testing.T, killed command.Output) {
	t.Helper()
	noProcess(t)
	if s.whole(t) && killed.Stage == "fetch" {
		t.Errorf("killed while it fetched, it went on to the end")
	}
}

// again runs while the child of a killed parent may still be there. It may refuse for that reason, and must not disturb
// the child.
func (s *restores) again(t *testing.T, victim string) {
	t.Helper()
	_, before := os.Stat(s.target)
	o := run(t, s.args...)
	noProcess(t)
	whole := s.whole(t)
	if o.Code == 0 {
		o.Succeeded(t, nil)
		return
	}
	o.Failed(t, 4)
	if victim != dr && before != nil || !whole {
		t.Errorf("refused, and nothing is there\n%s", o)
	}
}

// boot starts servers on the restored data dirs.
func (s *restores) boot(t *testing.T) {
	t.Helper()
	var dirs []servers.Existing
	for i, peer := range s.peers {
		name := fmt.Sprintf("m%d", i+1)
		dirs = append(dirs, servers.Existing{Name: name, DataDir: filepath.Join(s.target, name), PeerURL: peer})
	}
	c := servers.Boot(t, servers.Options{}, dirs...)
	all, err := c.Client(t).Get(t.Context(), "random/1/00000000")
	if err != nil || len(all.Kvs) != 1 {
		t.Errorf("the restored cluster gives %v, %v", all, err)
	}
}

// TestRunningBackupIsNoLeftover checks that a backup that is running, here stopped in its middle, does not count as a
// leftover.
func TestRunningBackupIsNoLeftover(t *testing.T) {
	if testing.Short() {
		return
	}
	l := newLarge(t)
	r := repo(filepath.Join(t.TempDir(), "repo"))
	g := newGate(t, l.server.Members[0].ClientURL, largeSize/2)
	slow := start(t, backupArgs(r, l.key, []string{g.url})...)
	<-g.reached
	slow.Signal(t, syscall.SIGSTOP)
	pieces := r.leftovers(t)
	if len(pieces) != 1 {
		t.Fatalf("the running backup shows as %q", pieces)
	}
	nextSecond()
	backUp(t, r, l.key, l.server.Endpoints())
	after := r.leftovers(t)
	if !slices.Equal(after, pieces) {
		t.Errorf("the leftovers are %q, were %q", after, pieces)
	}
	slow.Signal(t, syscall.SIGCONT)
	g.open()
	slow.Wait(t).Succeeded(t, nil)
	n := len(r.list(t).Backups)
	if n != 2 {
		t.Errorf("%d backups are listed, want 2", n)
	}
	verifyNew(t, r, l.key, map[catalog.ID]bool{})
	onlyBackups(t, r)
}

// nextSecond waits until a backup gets another id: two in one second with one revision have the same.
func nextSecond() {
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1010 * time.Millisecond)))
}

// TestTwoBackupsAtOnce starts two backups in the same second, which compete for one name. One may fail with a refusal;
// every listed backup is complete.
func TestTwoBackupsAtOnce(t *testing.T) {
	if testing.Short() {
		return
	}
	l := newLarge(t)
	r := repo(filepath.Join(t.TempDir(), "repo"))
	for range 3 {
		args := backupArgs(r, l.key, l.server.Endpoints(), "--dial-timeout", "1m") // for a busy host
		a, b := start(t, args...), start(t, args...)
		first, second := a.Wait(t), b.Wait(t)
		switch {
		case first.Code == 0 && second.Code == 0:
		case first.Code == 0:
			second.Failed(t, 1, "exists")
		default:
			first.Failed(t, 1, "exists")
			second.Succeeded(t, nil)
		}
	}
	verifyNew(t, r, l.key, map[catalog.ID]bool{})
	onlyBackups(t, r)
}

// TestTwoRestoresAtOnce starts two restores into one place: one succeeds, the other is refused, and the result is
// complete.
func TestTwoRestoresAtOnce(t *testing.T) {
	if testing.Short() {
		return
	}
	s := newRestores(t)
	for range 2 {
		a, b := start(t, s.args...), start(t, s.args...)
		first, second := a.Wait(t), b.Wait(t)
		if first.Code != 0 {
			first, second = second, first
		}
		first.Succeeded(t, nil)
		second.Failed(t, 4)
		if !s.whole(t) {
			t.Error("nothing was restored")
		}
		s.alone(t)
		s.clear(t)
	}
}

func TestInterruptedBackup(t *testing.T) {
	if testing.Short() {
		return
	}
	l := newLarge(t)
	for _, stage := range backupStages {
		r := repo(filepath.Join(t.TempDir(), "repo"))
		g := newGate(t, l.server.Members[0].ClientURL, largeSize/2)
		if stage.name != "stream" {
			g.open()
		}
		p := start(t, backupArgs(r, l.key, []string{g.url})...)
		if !p.Until(1, stage.name) {
			t.Fatalf("%s", p.Wait(t))
		}
		if stage.name == "stream" {
			<-g.reached
		}
		p.Signal(t, syscall.SIGINT)
		o := p.Wait(t)
		if o.Code == 0 { // it came too late
			verifyNew(t, r, l.key, map[catalog.ID]bool{})
			continue
		}
		o.Failed(t, 130, "interrupted")
		if stage.name != "commit" || len(r.list(t).Backups) == 0 {
			nothingIn(t, string(r))
		}
	}
	noProcess(t)
}

func TestInterruptedRestore(t *testing.T) {
	if testing.Short() {
		return
	}
	s := newRestores(t)
	for _, group := range []bool{false, true} { // a shell interrupts all processes, kill(1) one
		for _, stage := range restoreStages {
			late := 0
			for s.interrupt(t, stage.name, group) && stage.name != "rename" && stage.name != "build" { // on a busy host the signal may come late
				late++
				if late == 5 {
					t.Fatalf("interrupted at %s, it went on to the end %d times", stage.name, late)
				}
			}
		}
	}
}

// interrupt starts a restore, and interrupts it, or its whole group of processes, once a stage has begun. It reports whether the restore has
// ended with whole data all the same, and checks that it leaves nothing that keeps the next one from working.
func (s *restores) interrupt(t *testing.T, stage string, group bool) (whole bool) {
	t.Helper()
	p := start(t, s.args...)
	if !p.Until(1, stage) {
		t.Fatalf("%s", p.Wait(t))
	}
	if group {
		_ = syscall.Kill(-p.PID(), syscall.SIGINT)
	} else {
		p.Signal(t, syscall.SIGINT)
	}
	o := p.Wait(t)
	if o.Code != 0 {
		o.Failed(t, 130, "interrupted")
	}
	running := processes(t)
	if len(running) > 0 {
		t.Errorf("dr has ended before %q", running)
	}
	whole = s.whole(t)
	s.alone(t)
	s.clear(t)
	return whole
}
