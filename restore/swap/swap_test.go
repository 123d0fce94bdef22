package swap_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/swap"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// form is a layout of a member's data on its disks.
type form string

const (
	plain      form = "plain"
	withLog    form = "log in a directory of its own"
	mounted    form = "mount point"
	mountedLog form = "mount point, log in a directory of its own"

	// On these there is no old data.
	newDir      form = "no data dir"
	newLog      form = "no data dir, no log"
	newMount    form = "empty mount point"
	newMountLog form = "empty mount point, no log"
	emptyLog    form = "no data dir, empty log"
)

var (
	forms       = []form{plain, withLog, mounted, mountedLog}
	vacantForms = []form{newDir, newLog, newMount, newMountLog, emptyLog}
	allForms    = slices.Concat(forms, vacantForms)
)

func (f form) isVacant() bool { return slices.Contains(vacantForms, f) }

func (f form) isMounted() bool {
	return slices.Contains([]form{mounted, mountedLog, newMount, newMountLog}, f)
}

func (f form) hasLog() bool {
	return slices.Contains([]form{withLog, mountedLog, newLog, newMountLog, emptyLog}, f)
}

const id = "0123abcd"

// disk is a member's data dir with files that name their content, old or new.
type disk struct {
	form form
	data string
	wal  string // "": in the data dir
}

const (
	oldData = "old"
	newData = "new"
	noData  = "nothing" // etcd would begin an empty cluster
)

func newDisk(t testing.TB, f form) disk {
	t.Helper()
	d := disk{form: f, data: filepath.Join(t.TempDir(), "etcd")}
	if f.hasLog() {
		d.wal = filepath.Join(t.TempDir(), "wal")
	}
	if !f.isVacant() {
		writeMember(t, plan.Into{DataDir: d.data, WALDir: d.wal}, oldData)
	}
	if f.isMounted() {
		mustMkdir(t, filepath.Join(d.data, "lost+found"))
	}
	if f == emptyLog {
		mustMkdir(t, d.wal)
	}
	return d
}

// undone returns the data on which etcd starts after an undo.
func (f form) undone() string {
	if f.isVacant() {
		return ""
	}
	return oldData
}

func mustMkdir(t testing.TB, dir string) {
	t.Helper()
	err := os.MkdirAll(dir, 0o700)
	if err != nil {
		t.Fatal(err)
	}
}

func writeMember(t testing.TB, into plan.Into, content string) {
	t.Helper()
	err := makeMember(into, content)
	if err != nil {
		t.Fatal(err)
	}
}

func makeMember(into plan.Into, content string) error {
	if into.WALDir == "" {
		into.WALDir = filepath.Join(into.DataDir, "member", "wal")
	}
	for _, file := range []string{filepath.Join(into.DataDir, "member", "snap", "db"), filepath.Join(into.WALDir, "0.wal")} {
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o600))
		if err != nil {
			return err
		}
	}
	return nil
}

func (d disk) plan() plan.Plan {
	return plan.Plan{
		ID: "0123456789abcdef", File: "/snapshot.db", Token: "token",
		Members: []plan.Member{{Name: "m1", PeerURLs: []string{"http://127.0.0.1:2380"}}},
		Into:    plan.Into{Name: "m1", DataDir: d.data, WALDir: d.wal},
	}
}

// open returns the Swap as a new process does.
func (d disk) open(t testing.TB) *swap.Swap {
	t.Helper()
	s, err := swap.New(id, d.data, d.wal)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (d disk) stage(t testing.TB) {
	t.Helper()
	stage(t, d.open(t), d.plan(), newData)
}

// stage stages data with this content.
func stage(t testing.TB, s *swap.Swap, p plan.Plan, content string) {
	t.Helper()
	_, err := s.Stage(p, building(content))
	if err != nil {
		t.Fatal(err)
	}
}

// building builds data with this content, in the place of the restore engine.
func building(content string) func(plan.Plan) (restore.Result, error) {
	return func(p plan.Plan) (restore.Result, error) {
		return restore.Result{ClusterID: "cafe", Members: make([]restore.Restored, 1)}, makeMember(p.Into, content)
	}
}

// TestMomentaryLock holds the lock of the new data's folder for a moment, as a process does that inherits it and has not executed its
// program yet.
func TestMomentaryLock(t *testing.T) {
	d := newDisk(t, plain)
	d.stage(t)
	lock, err := child.LockDir(filepath.Dir(d.open(t).Into("").DataDir))
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() { lock.Close() })
	d.stage(t)
}

// boots returns the data on which etcd would start: old, new, nothing, or "" if it refuses. Anything else fails the test, and so does
// nothing where there was old data.
func (d disk) boots(t testing.TB) string {
	t.Helper()
	member := filepath.Join(d.data, "member")
	for _, path := range []string{d.data, member} {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) && d.form.isVacant() {
			return noData
		}
		if err != nil {
			t.Fatalf("etcd would begin an empty cluster: %v", err)
		}
		if info.Mode().IsRegular() {
			return ""
		}
	}
	wal := filepath.Join(member, "wal")
	if d.wal != "" {
		wal = d.wal
	}
	data, err := os.ReadFile(filepath.Join(member, "snap", "db"))
	log, logErr := os.ReadFile(filepath.Join(wal, "0.wal"))
	if err != nil || logErr != nil || string(data) != string(log) {
		t.Fatalf("the database is %q (%v), the log %q (%v)", data, err, log, logErr)
	}
	return string(data)
}

// walk carries out at most limit actions, each as a new process.
func (d disk) walk(t testing.TB, goals []swap.Goal, limit int) (n int) {
	t.Helper()
	for _, goal := range goals {
		for n < limit {
			more, err := d.open(t).Step(goal)
			if err != nil {
				t.Fatalf("%s: %v", goal, err)
			}
			if !more {
				break
			}
			n++
			got := d.boots(t)
			if got == noData {
				t.Fatalf("%s: etcd would begin an empty cluster", goal)
			}
		}
	}
	return n
}

const all = 1000

func TestReplaceAndUndo(t *testing.T) {
	for _, f := range forms {
		t.Run(string(f), func(t *testing.T) {
			d := newDisk(t, f)
			d.stage(t)
			s := d.open(t)
			wantState(t, s, swap.Staged)
			for _, step := range []struct {
				do    func() error
				state swap.State
				boots string
			}{
				{s.Undo, swap.Staged, oldData},
				{s.CloseLive, swap.Closed, ""},
				{s.Undo, swap.Staged, oldData},
				{s.CloseLive, swap.Closed, ""},
				{s.CloseLive, swap.Closed, ""},
				{s.Place, swap.Placed, newData},
				{s.Place, swap.Placed, newData},
				{s.Undo, swap.Undone, oldData},
				{s.Undo, swap.Undone, oldData},
			} {
				err := step.do()
				if err != nil {
					t.Fatal(err)
				}
				wantState(t, s, step.state)
				got := d.boots(t)
				if got != step.boots {
					t.Errorf("%s: etcd starts on %q, want %q", step.state, got, step.boots)
				}
			}
			if f.isMounted() {
				_, err := os.Stat(filepath.Join(d.data, "lost+found"))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestVacantDisk restores onto a disk without old data. etcd does not start on it from the staging on until the new data is in place, and
// after that is taken away, until the restore is discarded.
func TestVacantDisk(t *testing.T) {
	for _, f := range vacantForms {
		t.Run(string(f), func(t *testing.T) {
			d := newDisk(t, f)
			_, err := d.open(t).Stage(d.plan(), func(p plan.Plan) (restore.Result, error) {
				d.wantBoots(t, "")
				wantState(t, d.open(t), swap.Vacant)
				return building(newData)(p)
			})
			if err != nil {
				t.Fatal(err)
			}
			s := d.open(t)
			for _, step := range []struct {
				do    func() error
				state swap.State
				boots string
			}{
				{s.Undo, swap.Ready, ""},
				{s.CloseLive, swap.Ready, ""},
				{s.Withdraw, swap.Ready, ""},
				{s.Place, swap.Placed, newData},
				{s.CloseLive, swap.Placed, newData},
				{s.Place, swap.Placed, newData},
				{s.Discard, swap.Placed, newData},
				{s.Review, swap.Placed, newData},
				{s.Withdraw, swap.Emptied, ""},
				{s.Withdraw, swap.Emptied, ""},
				{s.Undo, swap.Emptied, ""},
				{s.Review, swap.Emptied, ""},
				{s.Discard, swap.Bare, noData},
				{s.Discard, swap.Bare, noData},
			} {
				err := step.do()
				if err != nil {
					t.Fatal(err)
				}
				wantState(t, s, step.state)
				d.wantBoots(t, step.boots)
			}
			aside := swap.Failed(s)
			content, err := os.ReadFile(filepath.Join(aside, "snap", "db"))
			if err != nil || string(content) != newData {
				t.Errorf("the data on which etcd may have started is %q, %v", content, err)
			}
			must(t, func() error { return swap.Clean(id, d.data, "") })
			d.wantNothing(t)
		})
	}
}

// TestGuard blocks a disk without data. Another restore replaces the guard, and taking that one back puts it there again. The guard is live
// until the new data is in place.
func TestGuard(t *testing.T) {
	for _, f := range vacantForms {
		t.Run(string(f), func(t *testing.T) {
			d := newDisk(t, f)
			first, err := swap.New("fedcba98", d.data, d.wal)
			if err != nil {
				t.Fatal(err)
			}
			must(t, first.Block)
			d.wantBoots(t, "")
			wantState(t, d.open(t), swap.Guarded)
			err = d.open(t).Check(t.Context(), d.plan())
			if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "a file keeps etcd from starting there: move that file aside") {
				t.Errorf("--replace: %v", err)
			}
			d.stage(t)
			s := d.open(t)
			for _, step := range []struct {
				do    func() error
				state swap.State
				boots string
			}{
				{s.Discard, swap.Guarded, ""},
				{s.Undo, swap.Guarded, ""},
				{first.Block, swap.Guarded, ""},
				{first.Discard, swap.Guarded, ""},
				{func() error { d.stage(t); return s.Place() }, swap.Placed, newData},
				{s.Withdraw, swap.Emptied, ""},
				{s.Discard, swap.Guarded, ""},
				{s.Block, swap.Guarded, ""},
				{func() error { return swap.Clean(id, d.data, "") }, swap.Guarded, ""},
			} {
				must(t, step.do)
				wantState(t, s, step.state)
				d.wantBoots(t, step.boots)
			}
		})
	}
}

// wantNothing fails the test unless the disk has nothing but lost+found.
func (d disk) wantNothing(t testing.TB) {
	t.Helper()
	for _, dir := range []string{filepath.Dir(d.data), d.data, filepath.Dir(d.wal)} {
		entries, err := os.ReadDir(dir)
		if dir == "." || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for _, e := range entries {
			if e.Name() != "lost+found" && filepath.Join(dir, e.Name()) != d.data {
				t.Errorf("left: %s in %s", e.Name(), dir)
			}
		}
	}
}

// TestDiscard discards in each state: new data on which etcd cannot have started is removed, all else stays.
func TestDiscard(t *testing.T) {
	for _, f := range allForms {
		for _, c := range []struct {
			way  []swap.Goal
			gone bool
		}{
			{nil, true},
			{[]swap.Goal{swap.Close, swap.Undo}, true},
			{[]swap.Goal{swap.Close}, f.isVacant()},
			{[]swap.Goal{swap.Close, swap.Place}, false},
			{[]swap.Goal{swap.Close, swap.Place, swap.Undo}, false},
		} {
			d := newDisk(t, f)
			must(t, d.open(t).Discard) // there is no folder
			d.stage(t)
			d.walk(t, c.way, all)
			before := d.boots(t)
			must(t, d.open(t).Discard, d.open(t).Discard)
			left := swapDirs(t, d.data)
			if f.isMounted() {
				left = swapDirs(t, filepath.Join(d.data, "member"))
			}
			if (len(left) == 0) != c.gone {
				t.Errorf("%s, %v: left: %q", f, c.way, left)
			}
			want := before
			if before == "" && f.isVacant() {
				want = noData
			}
			d.wantBoots(t, want)
		}
	}
}

// TestDiscardOtherLiveData discards a restore after its blocker or its old data was replaced: that is not touched.
func TestDiscardOtherLiveData(t *testing.T) {
	for _, f := range allForms {
		if f.isMounted() {
			continue // the same path, below another directory
		}
		d := newDisk(t, f)
		d.stage(t)
		remove(t, d.data)
		if d.wal != "" {
			remove(t, d.wal)
		}
		writeMember(t, plan.Into{DataDir: d.data, WALDir: d.wal}, "strange")
		wantState(t, d.open(t), swap.Stale)
		must(t, d.open(t).Discard)
		d.wantBoots(t, "strange")
		left := append(swapDirs(t, d.data), swapDirs(t, d.wal)...)
		if len(left) > 0 {
			t.Errorf("%s: left: %q", f, left)
		}
	}
}

// TestStagedAgainForOtherData stages again after live data was removed, or added: the second build is for the data that is there now.
func TestStagedAgainForOtherData(t *testing.T) {
	for _, c := range []struct{ before, after form }{{plain, newDir}, {newDir, plain}, {withLog, newLog}, {newLog, withLog}} {
		d := newDisk(t, c.before)
		d.stage(t)
		remove(t, d.data)
		if d.wal != "" {
			remove(t, d.wal)
		}
		d.form = c.after
		if !c.after.isVacant() {
			writeMember(t, plan.Into{DataDir: d.data, WALDir: d.wal}, oldData)
		}
		d.stage(t)
		d.walk(t, []swap.Goal{swap.Close, swap.Place}, all)
		d.wantBoots(t, newData)
		d.walk(t, []swap.Goal{swap.Withdraw, swap.Undo}, all)
		d.wantBoots(t, c.after.undone())
	}
}

// A restore that is over is not staged again: etcd may have written to the data that it keeps in failed.
func TestStageAfterTheEnd(t *testing.T) {
	for _, f := range allForms {
		d := newDisk(t, f)
		d.stage(t)
		d.walk(t, []swap.Goal{swap.Close, swap.Place, swap.Undo}, all)
		ends := []func() error{func() error { return nil }, d.open(t).Discard}
		if !f.isVacant() && !f.isMounted() {
			ends = append(ends, func() error { return os.Rename(d.data, d.data+".bak") })
		}
		for _, end := range ends {
			must(t, end)
			_, err := d.open(t).Stage(d.plan(), building("again"))
			if !errors.Is(err, fault.Refused) {
				t.Errorf("%s: error %v", f, err)
			}
			content, err := os.ReadFile(filepath.Join(swap.Failed(d.open(t)), "snap", "db"))
			if err != nil || string(content) != newData {
				t.Errorf("%s: the data in failed is %q, %v", f, content, err)
			}
		}
	}
}

// An empty cluster begins after a restore on a disk without old data was taken back. Clean leaves it alone.
func TestEmptyClusterAfterTheEnd(t *testing.T) {
	for _, f := range vacantForms {
		d := newDisk(t, f)
		d.stage(t)
		d.walk(t, []swap.Goal{swap.Place, swap.Withdraw}, all)
		must(t, d.open(t).Discard)
		writeMember(t, plan.Into{DataDir: d.data, WALDir: d.wal}, "empty")
		wantState(t, d.open(t), swap.Superseded)
		must(t, func() error { return swap.Clean(id, d.data, "") })
		d.wantBoots(t, "empty")
		left := append(swapDirs(t, d.data), append(swapDirs(t, filepath.Join(d.data, "member")), swapDirs(t, d.wal)...)...)
		if len(left) > 0 {
			t.Errorf("%s: left: %q", f, left)
		}
	}
}

// A log without its data dir may be old data of this member, or another's.
func TestLogWithoutDataDir(t *testing.T) {
	d := newDisk(t, withLog)
	remove(t, d.data)
	_, err := d.open(t).IsVacant()
	wantRefused(t, err, "move "+d.wal+" aside")
	_, err = d.open(t).Stage(d.plan(), nil)
	wantRefused(t, err, "move "+d.wal+" aside")
	must(t, d.open(t).Discard)
	left := append(swapDirs(t, d.data), swapDirs(t, d.wal)...)
	if len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// The parent directories of a new disk may be missing too.
func TestVacantDiskWithoutParents(t *testing.T) {
	root := t.TempDir()
	d := disk{form: newLog, data: filepath.Join(root, "a", "b", "etcd"), wal: filepath.Join(root, "c", "wal")}
	v, err := d.open(t).Look()
	if err != nil || !v.Vacant || v.Data.Total == 0 || v.Log.Total == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	d.stage(t)
	d.walk(t, []swap.Goal{swap.Place}, all)
	d.wantBoots(t, newData)
}

// A restore that fails on a disk without old data keeps etcd from starting there, and can be repeated or discarded.
func TestFailedStageKeepsTheBlocker(t *testing.T) {
	for _, f := range vacantForms {
		d := newDisk(t, f)
		crash := errors.New("crash")
		_, err := d.open(t).Stage(d.plan(), func(plan.Plan) (restore.Result, error) { return restore.Result{}, crash })
		if !errors.Is(err, crash) {
			t.Fatal(err)
		}
		d.wantBoots(t, "")
		d.stage(t)
		wantState(t, d.open(t), swap.Ready)
		_, _ = d.open(t).Stage(d.plan(), func(plan.Plan) (restore.Result, error) { return restore.Result{}, crash })
		d.wantBoots(t, "")
		must(t, d.open(t).Discard)
		d.wantNothing(t)
	}
}

func wantState(t testing.TB, s *swap.Swap, want swap.State) {
	t.Helper()
	v, err := s.Look()
	if err != nil || v.State != want {
		t.Fatalf("state %s, %v, want %s (%+v)", v.State, err, want, v.Facts)
	}
}

// A process can be killed between any two actions; a new one continues, or goes back.
func TestKilledAtEachBoundary(t *testing.T) {
	forward := []swap.Goal{swap.Close, swap.Place}
	for _, f := range allForms {
		counted := newDisk(t, f)
		counted.stage(t)
		steps := counted.walk(t, forward, all)
		for k := range steps + 1 {
			for _, c := range []struct {
				goals []swap.Goal
				want  string
			}{{forward, newData}, {[]swap.Goal{swap.Undo}, f.undone()}, {[]swap.Goal{swap.Withdraw, swap.Undo}, f.undone()}} {
				d := newDisk(t, f)
				d.stage(t)
				d.walk(t, forward, k)
				d.walk(t, c.goals, all)
				got := d.boots(t)
				if got != c.want {
					t.Errorf("%s, %d actions, then %v: etcd starts on %q", f, k, c.goals, got)
				}
			}
		}
		back := counted.walk(t, []swap.Goal{swap.Undo}, all)
		for k := range back {
			for _, goal := range []swap.Goal{swap.Undo, swap.Withdraw} {
				d := newDisk(t, f)
				d.stage(t)
				d.walk(t, forward, all)
				d.walk(t, []swap.Goal{goal}, k)
				d.walk(t, []swap.Goal{swap.Withdraw, swap.Undo}, all)
				got := d.boots(t)
				if got != f.undone() {
					t.Errorf("%s, %s after %d actions: etcd starts on %q", f, goal, k, got)
				}
			}
		}
	}
}

// Variables that make the test binary a child.
const (
	childEnv = "ETCD_DR_SWAP_TEST_CHILD" // of swapForever
	onceEnv  = "ETCD_DR_SWAP_TEST_ONCE"  // of swapOnce
)

// TestMain is also the main function of the children.
func TestMain(m *testing.M) {
	dir := os.Getenv(onceEnv)
	if dir != "" {
		err := swapOnce(disk{data: dir})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	of := os.Getenv(childEnv)
	if of != "" {
		f, rest, _ := strings.Cut(of, "|")
		data, wal, _ := strings.Cut(rest, "|")
		swapForever(disk{form: form(f), data: data, wal: wal})
	}
	os.Exit(m.Run())
}

// swapForever goes forward and back until it is killed.
func swapForever(d disk) {
	acts := []func(*swap.Swap) error{(*swap.Swap).CloseLive, (*swap.Swap).Undo}
	if d.form.isVacant() {
		stage := func(s *swap.Swap) error {
			_, err := s.Stage(d.plan(), building(newData))
			return err
		}
		acts = []func(*swap.Swap) error{stage, (*swap.Swap).Place, (*swap.Swap).Withdraw, (*swap.Swap).Discard, d.clean}
	}
	for i := 0; ; i++ {
		s, err := swap.New(id, d.data, d.wal)
		if err == nil {
			err = acts[i%len(acts)](s)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Print(".")
	}
}

// clean removes all data that is aside, if there is any.
func (d disk) clean(*swap.Swap) error {
	err := swap.Clean(id, d.data, d.wal)
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// kills returns n, or 2 in short tests: each starts a process.
func kills(n int) int {
	if testing.Short() {
		return 2
	}
	return n
}

// A kill within an action leaves a state from which both ways continue.
func TestKillNine(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, seed))
	for _, f := range forms {
		d := newDisk(t, f)
		d.stage(t)
		for round := range kills(6) {
			killChild(t, d, random)
			got := d.boots(t)
			if got == newData {
				t.Fatalf("seed %d, %s: etcd starts on the new data", seed, f)
			}
			if round%2 == 1 {
				d.walk(t, []swap.Goal{swap.Close}, all)
			}
			d.walk(t, []swap.Goal{swap.Undo}, all)
			got = d.boots(t)
			if got != oldData {
				t.Fatalf("seed %d, %s: etcd starts on %q", seed, f, got)
			}
		}
		d.walk(t, []swap.Goal{swap.Close, swap.Place}, all)
		got := d.boots(t)
		if got != newData {
			t.Errorf("seed %d, %s: etcd starts on %q", seed, f, got)
		}
	}
}

// A kill within an action on a disk without old data leaves a state from which it can be staged again, and one from which nothing is left.
func TestKillNineOnAVacantDisk(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, seed))
	for _, f := range vacantForms {
		d := newDisk(t, f)
		for round := range kills(10) {
			killChild(t, d, random)
			v, err := d.open(t).Look()
			if err != nil || v.State == swap.Unknown {
				t.Fatalf("seed %d, %s: %+v, %v", seed, f, v, err)
			}
			if round%2 == 0 && v.State != swap.Placed && v.State != swap.Placing && v.Facts.Data.New != swap.Blocker {
				d.stage(t)
				d.walk(t, []swap.Goal{swap.Place}, all)
				d.wantBoots(t, newData)
			}
			begun, err := d.open(t).HasBegun()
			if err != nil {
				t.Fatal(err)
			}
			if begun {
				d.walk(t, []swap.Goal{swap.Withdraw, swap.Undo}, all)
				d.wantBoots(t, "")
			}
			must(t, d.open(t).Discard, func() error { return d.clean(nil) })
			d.wantNothing(t)
		}
	}
}

// killChild starts swapForever, and kills it somewhere after its first few changes.
func killChild(t *testing.T, d disk, random *rand.Rand) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+string(d.form)+"|"+d.data+"|"+d.wal)
	var words strings.Builder
	child.Stderr = &words
	changes, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = child.Start()
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadFull(changes, make([]byte, 1+random.IntN(4)))
	time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
	_ = child.Process.Signal(syscall.SIGKILL)
	_ = child.Wait()
	if err != nil || words.Len() > 0 {
		t.Fatalf("%v: %s", err, &words)
	}
}

// The new data has the owner, the mode and the SELinux label of the old data.
func TestOwnerAndModeAreKept(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("only root may change owners")
		}
		t.Skip("only root may change owners")
	}
	for _, f := range forms {
		d := newDisk(t, f)
		top, made := d.data, filepath.Join(d.data, "member") // the operator's and etcd's
		switch f {
		case withLog:
			made = d.wal
		case mounted, mountedLog:
			top = made
		}
		err := filepath.WalkDir(made, func(path string, _ fs.DirEntry, err error) error {
			setLabel(t, path, "of etcd")
			return errors.Join(err, os.Lchown(path, 1234, 2345))
		})
		err = errors.Join(err, os.Chmod(made, 0o750))
		if err != nil {
			t.Fatal(err)
		}
		if f == plain {
			setLabel(t, top, "of the top")
			err := errors.Join(os.Chown(top, 0, 2345), os.Chmod(top, 0o770|fs.ModeSetgid))
			if err != nil {
				t.Fatal(err)
			}
		}
		labeled := []string{top, made, filepath.Join(d.data, "member", "snap", "db"), filepath.Join(made, "0.wal")}
		before := ownerAndMode(t, top, made) + labelsOf(labeled)
		d.stage(t)
		d.walk(t, []swap.Goal{swap.Close, swap.Place}, all)
		after := ownerAndMode(t, top, made) + labelsOf(labeled)
		if after != before {
			t.Errorf("%s: %s, want %s", f, after, before)
		}
		err = filepath.WalkDir(made, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && !strings.HasPrefix(ownerAndMode(t, path), "1234:2345 ") {
				t.Errorf("%s: %s belongs to %s", f, path, ownerAndMode(t, path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A restore that runs as the member's user cannot give its data to root, nor to a group that it is not in. The member can use the data.
func TestOwnerThatIsNotPermitted(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("only root may change owners")
		}
		t.Skip("only root may change owners")
	}
	const user = 1234
	d := newDisk(t, plain)
	err := errors.Join(
		filepath.WalkDir(filepath.Join(d.data, "member"), func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, user, 2345))
		}),
		os.Chmod(d.data, 0o777), os.Chmod(filepath.Dir(d.data), 0o777), os.Chmod(filepath.Dir(filepath.Dir(d.data)), 0o755),
	)
	if err != nil {
		t.Fatal(err)
	}
	d.runAs(t, user)
	d.wantBoots(t, newData)
	got := ownerAndMode(t, d.data, filepath.Join(d.data, "member", "snap", "db"))
	if got != "1234:1234 drwxrwxrwx 1234:1234 -rw------- " {
		t.Errorf("owners and modes: %s", got)
	}
}

// runAs stages and places new data in a process of another user.
func (d disk) runAs(t *testing.T, user uint32) {
	t.Helper()
	child := exec.Command("/proc/self/exe") // the directory of the test's program is not open to that user
	child.Env = append(os.Environ(), onceEnv+"="+d.data)
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	words, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, words)
	}
}

// swapOnce stages and places new data.
func swapOnce(d disk) error {
	s, err := swap.New(id, d.data, "")
	if err != nil {
		return err
	}
	_, err = s.Stage(d.plan(), building(newData))
	if err != nil {
		return err
	}
	return errors.Join(s.CloseLive(), s.Place())
}

func ownerAndMode(t *testing.T, paths ...string) (all string) {
	t.Helper()
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		owner := info.Sys().(*syscall.Stat_t)
		all += fmt.Sprintf("%d:%d %v ", owner.Uid, owner.Gid, info.Mode())
	}
	return all
}

// setLabel gives path an SELinux label, unless the kernel refuses it: only a process with CAP_SYS_ADMIN may, and with SELinux only a known one.
func setLabel(t *testing.T, path, text string) {
	t.Helper()
	err := unix.Lsetxattr(path, "security.selinux", []byte(text), 0)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("set the label of %s: %v", path, err)
	}
}

// labelsOf returns the SELinux labels of paths, of which some may be missing.
func labelsOf(paths []string) (all string) {
	for _, path := range paths {
		label := make([]byte, 64)
		n, _ := unix.Lgetxattr(path, "security.selinux", label)
		all += fmt.Sprintf("%q ", label[:max(n, 0)])
	}
	return all
}

// Data that appears in the place of a blocker is neither overwritten nor moved.
func TestStrangeDataIsRefused(t *testing.T) {
	d := newDisk(t, plain)
	d.stage(t)
	s := d.open(t)
	err := s.CloseLive()
	if err != nil {
		t.Fatal(err)
	}
	err = os.Remove(d.data)
	if err != nil {
		t.Fatal(err)
	}
	wantState(t, s, swap.Exposed)
	writeMember(t, plan.Into{DataDir: d.data}, "strange")
	for _, do := range []func() error{s.CloseLive, s.Place, s.Undo} {
		err := do()
		if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), "move it aside") {
			t.Errorf("error %v", err)
		}
	}
	got := d.boots(t)
	if got != "strange" {
		t.Errorf("it was replaced by %q", got)
	}
	err = os.RemoveAll(d.data)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Place()
	if err != nil {
		t.Fatal(err)
	}
	got = d.boots(t)
	if got != newData {
		t.Errorf("etcd starts on %q", got)
	}
}

func TestCleanKeepsTheOnlyCopy(t *testing.T) {
	for _, f := range []form{plain, withLog} {
		d := newDisk(t, f)
		d.stage(t)
		s := d.open(t)
		err := s.CloseLive()
		if err != nil {
			t.Fatal(err)
		}
		err = swap.Clean(id, d.data, "")
		if !errors.Is(err, fault.Refused) {
			t.Errorf("%s: closed: error %v", f, err)
		}
		err = s.Place()
		if err != nil {
			t.Fatal(err)
		}
		err = swap.Clean(id, d.data, "")
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		got := d.boots(t)
		if got != newData {
			t.Errorf("%s: etcd starts on %q", f, got)
		}
		for _, dir := range []string{d.data, d.wal} {
			left := swapDirs(t, dir)
			if len(left) > 0 {
				t.Errorf("%s: left: %q", f, left)
			}
		}
		err = swap.Clean(id, d.data, "")
		if !errors.Is(err, fault.NotFound) {
			t.Errorf("%s: again: error %v", f, err)
		}
	}
}

func swapDirs(t testing.TB, dir string) []string {
	t.Helper()
	if dir == "" {
		return nil
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".dr-swap-*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// New data that is not complete, or of another plan, is built again.
func TestStagedAgain(t *testing.T) {
	d := newDisk(t, withLog)
	crash := errors.New("crash")
	_, err := d.open(t).Stage(d.plan(), func(p plan.Plan) (restore.Result, error) {
		writeMember(t, p.Into, "half")
		return restore.Result{}, crash
	})
	if !errors.Is(err, crash) {
		t.Fatal(err)
	}
	left := append(swapDirs(t, d.data), swapDirs(t, d.wal)...)
	if len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	d.stage(t)
	d.stage(t)
	d.walk(t, []swap.Goal{swap.Close, swap.Place}, all)
	got := d.boots(t)
	if got != newData {
		t.Errorf("etcd starts on %q", got)
	}
}

// TestStageThatCannotBeginLeavesNothing checks that a Stage that is refused leaves no folder: in a mount point a folder would make the
// restore without --replace, which the refusal advises, refuse in turn.
func TestStageThatCannotBeginLeavesNothing(t *testing.T) {
	for _, f := range []form{withLog, mounted} {
		d := newDisk(t, withLog)
		if f == mounted {
			mustMkdir(t, filepath.Join(d.data, "lost+found"))
		}
		err := os.Symlink("missing", filepath.Join(filepath.Dir(d.wal), ".dr-swap-wal-"+id)) // so the log's folder cannot be used
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.open(t).Stage(d.plan(), nil)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: error %v", f, err)
		}
		for _, dir := range []string{d.data, filepath.Join(d.data, "member"), d.wal} {
			left := swapDirs(t, dir)
			if len(left) > 0 {
				t.Errorf("%s: left: %q", f, left)
			}
		}
		d.wantBoots(t, oldData)
	}
}

func TestChoose(t *testing.T) {
	d := newDisk(t, plain)
	p := d.plan()
	d.stage(t)
	other := p
	other.File = "/other.db"
	for name, c := range map[string]struct {
		plan plan.Plan
		want string // the id; "": another one
	}{
		"the same target":   {plan: p, want: id},
		"with other tokens": {plan: func() plan.Plan { q := p; q.ID, q.Token = "other", "other"; return q }(), want: id},
	} {
		s, err := swap.Choose(c.plan, nil)
		if err != nil || s.ID != c.want {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	s := d.open(t)
	err := s.CloseLive()
	if err != nil {
		t.Fatal(err)
	}
	s, err = swap.Choose(p, nil)
	if err != nil || s.ID != id {
		t.Errorf("closed: %+v, %v", s, err)
	}
	s, err = swap.Choose(other, nil)
	if err != nil || s.ID == id {
		t.Errorf("closed for another target: %+v, %v", s, err)
	}
	got := d.boots(t)
	if got != oldData {
		t.Errorf("closed for another target: etcd starts on %q", got)
	}
	left := swapDirs(t, d.data)
	if len(left) > 0 {
		t.Errorf("the staged data of another target was kept: %q", left)
	}
}

// A command that is repeated after its end changes nothing; once etcd has started on the data, the restore is a new one.
func TestChooseAfterTheEnd(t *testing.T) {
	for _, f := range []form{plain, withLog} {
		d := newDisk(t, f)
		d.stage(t)
		d.walk(t, []swap.Goal{swap.Close, swap.Place}, all)
		s, err := swap.Choose(d.plan(), nil)
		if err != nil || s.ID != id {
			t.Errorf("%s: %+v, %v", f, s, err)
		}
		err = s.Switch(t.Context(), nil)
		if err != nil {
			t.Errorf("%s: %v", f, err)
		}
		err = os.WriteFile(filepath.Join(d.data, "member", "snap", "db"), []byte("more"), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		s, err = swap.Choose(d.plan(), nil)
		if err != nil || s.ID == id {
			t.Errorf("%s: after etcd has written: %+v, %v", f, s, err)
		}
	}
}

// A kill before there is a record leaves a folder that the next run removes.
func TestFolderWithoutARecord(t *testing.T) {
	d := newDisk(t, plain)
	mustMkdir(t, filepath.Join(filepath.Dir(d.data), ".dr-swap-etcd-"+id))
	s, err := swap.Choose(d.plan(), nil)
	if err != nil || s.ID == id {
		t.Errorf("%+v, %v", s, err)
	}
	left := swapDirs(t, d.data)
	if len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// What else is in a data dir stays there.
func TestOtherContentStays(t *testing.T) {
	d := newDisk(t, plain)
	certificate := filepath.Join(d.data, "peer.crt")
	err := os.WriteFile(certificate, []byte("x"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	d.stage(t)
	d.walk(t, []swap.Goal{swap.Close, swap.Place}, all)
	got := d.boots(t)
	if got != newData {
		t.Errorf("etcd starts on %q", got)
	}
	_, err = os.Stat(certificate)
	if err != nil {
		t.Error(err)
	}
	found, err := swap.Find(d.data)
	if err != nil || len(found) != 1 || found[0].ID != id {
		t.Errorf("found %+v, %v", found, err)
	}
	// New content does not change where the old data is looked for.
	e := newDisk(t, plain)
	e.stage(t)
	e.walk(t, []swap.Goal{swap.Close, swap.Place}, all)
	mustMkdir(t, filepath.Join(e.data, "fixtures"))
	e.walk(t, []swap.Goal{swap.Undo}, all)
	got = e.boots(t)
	if got != oldData {
		t.Errorf("etcd starts on %q", got)
	}
}

// TestFilesAboutTheOldMember exchanges bitnami's files about a member with it, and leaves none of them next to the new one.
func TestFilesAboutTheOldMember(t *testing.T) {
	both := []string{"member_id", "new_member_envs"}
	for _, names := range [][]string{both[:1], both[1:], both} {
		d := newDisk(t, plain)
		content := func() (found []string) {
			for _, name := range both {
				text, err := os.ReadFile(filepath.Join(d.data, name))
				if err == nil {
					found = append(found, string(text))
				}
			}
			return found
		}
		for _, name := range names {
			err := os.WriteFile(filepath.Join(d.data, name), []byte(name), 0o600)
			if err != nil {
				t.Fatal(err)
			}
		}
		d.stage(t)
		d.walk(t, []swap.Goal{swap.Close, swap.Place}, all)
		if d.boots(t) != newData || len(content()) > 0 {
			t.Errorf("next to the new member: %q", content())
		}
		d.walk(t, []swap.Goal{swap.Undo}, all)
		if d.boots(t) != oldData || !slices.Equal(content(), names) {
			t.Errorf("after the way back: %q, want %q", content(), names)
		}
	}
}

// TestTheOldDataIsNeverLost cleans or discards after each action of a restore and of its way back: until the new data is in place, the old data
// can still be put back, and Discard never removes it.
func TestTheOldDataIsNeverLost(t *testing.T) {
	forward, back := []swap.Goal{swap.Close, swap.Place}, []swap.Goal{swap.Undo}
	for _, f := range forms {
		counted := newDisk(t, f)
		counted.stage(t)
		ahead := counted.walk(t, forward, all)
		behind := counted.walk(t, back, all)
		for k := range ahead + behind + 1 {
			for _, cleans := range []bool{false, true} {
				d := newDisk(t, f)
				d.stage(t)
				d.walk(t, forward, min(k, ahead))
				d.walk(t, back, max(0, k-ahead))
				before := d.boots(t)
				end := d.open(t).Discard
				if cleans {
					end = func() error { return swap.Clean(id, d.data, "") }
				}
				err := end()
				if cleans && errors.Is(err, fault.Refused) != (before == "") || !cleans && err != nil {
					t.Errorf("%s, %d actions, clean: %t: %v", f, k, cleans, err)
				}
				d.wantBoots(t, before)
				if before == oldData || cleans && before == newData { // by order
					continue
				}
				must(t, d.open(t).Undo)
				d.wantBoots(t, oldData)
			}
		}
	}
}

// TestNewDataGetsTheOwnerOfTheEmptyDataDir restores onto an empty mount point that is prepared for etcd's user.
func TestNewDataGetsTheOwnerOfTheEmptyDataDir(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may change owners")
	}
	for _, f := range []form{newMount, newMountLog} {
		d := newDisk(t, f)
		must(t, func() error { return os.Lchown(d.data, 1234, 2345) })
		d.stage(t)
		d.walk(t, []swap.Goal{swap.Place}, all)
		d.wantBoots(t, newData)
		paths := []string{filepath.Join(d.data, "member"), filepath.Join(d.data, "member", "snap", "db")}
		if d.wal != "" {
			paths = append(paths, d.wal, filepath.Join(d.wal, "0.wal"))
		}
		for _, path := range paths {
			if !strings.HasPrefix(ownerAndMode(t, path), "1234:2345 ") {
				t.Errorf("%s: %s belongs to %s", f, path, ownerAndMode(t, path))
			}
		}
	}
}

// TestMountPoints mounts file systems at the directories of a member. Only member is exchanged in a data dir that is a mount point, which cannot
// be renamed, even if it contains nothing else. A log or a directory of the data dir at a mount point is refused.
func TestMountPoints(t *testing.T) {
	data := filepath.Join(t.TempDir(), "etcd")
	mount(t, data)
	writeMember(t, plan.Into{DataDir: data}, oldData)
	d := disk{form: plain, data: data}
	d.stage(t)
	d.walk(t, []swap.Goal{swap.Close, swap.Place}, all)
	d.wantBoots(t, newData)
	d.walk(t, []swap.Goal{swap.Undo}, all)
	d.wantBoots(t, oldData)

	d = newDisk(t, withLog)
	wal := filepath.Join(t.TempDir(), "wal")
	mount(t, wal)
	_, err := swap.New(id, d.data, wal)
	wantRefused(t, err, "is a mount point, which cannot be exchanged")

	d = newDisk(t, plain)
	mount(t, filepath.Join(d.data, "member", "wal"))
	wantRefused(t, d.open(t).Check(t.Context(), d.plan()), "is a symbolic link or a mount point")
}

// mount mounts a small file system at dir, until the test ends.
func mount(t *testing.T, dir string) {
	t.Helper()
	mustMkdir(t, dir)
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skipf("only a process with CAP_SYS_ADMIN may mount: %v", err)
	}
	must(t, func() error { return err })
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
}

// TestLinkWithoutTarget finds a restore through a symbolic link, although nothing is in the place of the data dir.
func TestLinkWithoutTarget(t *testing.T) {
	d := newDisk(t, plain)
	d.stage(t)
	d.walk(t, []swap.Goal{swap.Close}, all)
	err := os.RemoveAll(d.data) // the file that keeps etcd from starting
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(filepath.Dir(d.data), "link")
	elsewhere := filepath.Join(t.TempDir(), "linked")
	err = os.Symlink(filepath.Dir(d.data), elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	up := filepath.Join("..", filepath.Base(filepath.Dir(d.data)), filepath.Base(d.data))
	for _, to := range []string{d.data, filepath.Base(d.data), up} {
		_ = os.Remove(link)
		err := os.Symlink(to, link)
		if err != nil {
			t.Fatal(err)
		}
		found, err := swap.Find(filepath.Join(elsewhere, "link"))
		if err != nil || len(found) != 1 || found[0].ID != id || found[0].DataDir != d.data {
			t.Errorf("a link to %s: found %+v, %v", to, found, err)
		}
		s, err := swap.New(id, link, "")
		if err != nil || s.DataDir != d.data {
			t.Errorf("a link to %s: %+v, %v", to, s, err)
		}
	}
	_ = os.Remove(link)
	err = os.Symlink("missing/../link", link)
	if err != nil {
		t.Fatal(err)
	}
	_, err = swap.New(id, link, "")
	if fault.KindOf(err) != fault.Usage {
		t.Errorf("a link to itself: %v", err)
	}
	d.walk(t, []swap.Goal{swap.Undo}, all)
	if d.boots(t) != oldData {
		t.Error("etcd does not start on the old data")
	}
}

// Members in one folder can be restored at the same time.
func TestTwoMembersAtOnce(t *testing.T) {
	parent := t.TempDir()
	var working sync.WaitGroup
	for _, name := range []string{"m1", "m2"} {
		d := disk{form: plain, data: filepath.Join(parent, name)}
		writeMember(t, plan.Into{DataDir: d.data}, oldData)
		d.stage(t)
		working.Go(func() {
			s := d.open(t)
			for range 20 {
				err := errors.Join(s.CloseLive(), s.Undo())
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
}
