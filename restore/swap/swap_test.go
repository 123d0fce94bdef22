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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/swap"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// form is a layout of a member's data on its disks.
type form string

const (
	plain   form = "plain"
	withLog form = "log in a directory of its own"
	mounted form = "mount point"
)

var forms = []form{plain, withLog, mounted}

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
)

func newDisk(t testing.TB, f form) disk {
	t.Helper()
	d := disk{form: f, data: filepath.Join(t.TempDir(), "etcd")}
	if f == withLog {
		d.wal = filepath.Join(t.TempDir(), "wal")
	}
	writeMember(t, plan.Into{DataDir: d.data, WALDir: d.wal}, oldData)
	if f == mounted {
		mustMkdir(t, filepath.Join(d.data, "lost+found"))
	}
	return d
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
	if into.WALDir == "" {
		into.WALDir = filepath.Join(into.DataDir, "member", "wal")
	}
	for _, file := range []string{filepath.Join(into.DataDir, "member", "snap", "db"), filepath.Join(into.WALDir, "0.wal")} {
		mustMkdir(t, filepath.Dir(file))
		err := os.WriteFile(file, []byte(content), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
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
	if d.form == mounted {
		s = swap.Mounted(s)
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
	_, err := s.Stage(p, func(p plan.Plan) (restore.Result, error) {
		writeMember(t, p.Into, content)
		return restore.Result{ClusterID: "cafe", Members: make([]restore.Restored, 1)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// boots returns the data on which etcd would start: old, new, or "" if it refuses. Anything else fails the test.
func (d disk) boots(t testing.TB) string {
	t.Helper()
	member := filepath.Join(d.data, "member")
	for _, path := range []string{d.data, member} {
		info, err := os.Stat(path)
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
			d.boots(t)
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
			if f == mounted {
				_, err := os.Stat(filepath.Join(d.data, "lost+found"))
				if err != nil {
					t.Error(err)
				}
			}
		})
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
	for _, f := range forms {
		counted := newDisk(t, f)
		counted.stage(t)
		steps := counted.walk(t, forward, all)
		for k := range steps + 1 {
			for _, c := range []struct {
				goals []swap.Goal
				want  string
			}{{forward, newData}, {[]swap.Goal{swap.Undo}, oldData}} {
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
			d := newDisk(t, f)
			d.stage(t)
			d.walk(t, forward, all)
			d.walk(t, []swap.Goal{swap.Undo}, k)
			d.walk(t, []swap.Goal{swap.Undo}, all)
			got := d.boots(t)
			if got != oldData {
				t.Errorf("%s, undo after %d actions: etcd starts on %q", f, k, got)
			}
		}
	}
}

const childEnv = "ETCD_DR_SWAP_TEST_CHILD"

// TestMain is also the main function of the child that TestKillNine kills.
func TestMain(m *testing.M) {
	of := os.Getenv(childEnv)
	if of != "" {
		f, rest, _ := strings.Cut(of, "|")
		data, wal, _ := strings.Cut(rest, "|")
		swapForever(disk{form: form(f), data: data, wal: wal})
	}
	os.Exit(m.Run())
}

// swapForever closes and undoes until it is killed.
func swapForever(d disk) {
	s, err := swap.New(id, d.data, d.wal)
	for err == nil {
		if d.form == mounted {
			s = swap.Mounted(s)
		}
		err = s.CloseLive()
		fmt.Print(".")
		if err == nil {
			err = s.Undo()
		}
		fmt.Print(".")
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// A kill within an action leaves a state from which both ways continue.
func TestKillNine(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, seed))
	for _, f := range forms {
		d := newDisk(t, f)
		d.stage(t)
		for round := range 6 {
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

// The new data has the owner and the mode of the old data.
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
		case mounted:
			top = made
		}
		err := filepath.WalkDir(made, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, 1234, 2345))
		})
		err = errors.Join(err, os.Chmod(made, 0o750))
		if err != nil {
			t.Fatal(err)
		}
		if f == plain {
			err := errors.Join(os.Chown(top, 0, 2345), os.Chmod(top, 0o770|fs.ModeSetgid))
			if err != nil {
				t.Fatal(err)
			}
		}
		before := ownerAndMode(t, top, made)
		d.stage(t)
		d.walk(t, []swap.Goal{swap.Close, swap.Place}, all)
		after := ownerAndMode(t, top, made)
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
