package member_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/member"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// The ids of two restores.
const (
	id      = "0123456789abcdef"
	another = "fedcba9876543210"
)

// The contents of the files by which a test recognizes the data on a disk.
const (
	oldData = "old"
	newData = "new"
	noData  = "nothing" // etcd would begin an empty cluster
	blocked = ""        // etcd exits
)

// disk is the disk of member m1.
type disk struct {
	data string
	wal  string // "": in the data dir
	id   string // of the restore
}

// form describes a new disk.
type form struct{ vacant, mounted, withLog, guarded bool }

func allForms() (all []form) {
	for _, vacant := range []bool{false, true} {
		for _, mounted := range []bool{false, true} {
			all = append(all, form{vacant: vacant, mounted: mounted}, form{vacant: vacant, mounted: mounted, withLog: true})
		}
	}
	return all
}

// guardedForms returns those of disks whose data was lost, and on which another restore keeps etcd from starting.
func guardedForms() (all []form) {
	for _, f := range allForms() {
		f.guarded = true
		if f.vacant {
			all = append(all, f)
		}
	}
	return all
}

func newDisk(t *testing.T, f form) disk {
	t.Helper()
	d := disk{data: filepath.Join(t.TempDir(), "etcd"), id: id}
	if f.withLog {
		d.wal = filepath.Join(t.TempDir(), "wal")
	}
	var err error
	if !f.vacant {
		err = writeMember(plan.Into{DataDir: d.data, WALDir: d.wal}, oldData)
	}
	if f.mounted { // as the root of a new file system
		err = errors.Join(err, os.MkdirAll(filepath.Join(d.data, "lost+found"), 0o700))
	}
	if err != nil {
		t.Fatal(err)
	}
	if f.guarded {
		d.as(another).do(t, handoff.DoBlock, handoff.DoDiscard, handoff.DoClean)
	}
	return d
}

// as returns d for the tasks of another restore.
func (d disk) as(id string) disk {
	d.id = id
	return d
}

func writeMember(into plan.Into, content string) error {
	if into.WALDir == "" {
		into.WALDir = filepath.Join(into.DataDir, "member", "wal")
	}
	var all error
	for _, file := range []string{filepath.Join(into.DataDir, "member", "snap", "db"), filepath.Join(into.WALDir, "0.wal")} {
		all = errors.Join(all, os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o600))
	}
	return all
}

// boots returns the data on which etcd would start.
func (d disk) boots() string {
	member := filepath.Join(d.data, "member")
	for _, path := range []string{d.data, member} {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return noData
		}
		if err == nil && info.Mode().IsRegular() {
			return blocked
		}
	}
	wal := filepath.Join(member, "wal")
	if d.wal != "" {
		wal = d.wal
	}
	data, err := os.ReadFile(filepath.Join(member, "snap", "db"))
	log, logErr := os.ReadFile(filepath.Join(wal, "0.wal"))
	if err != nil || logErr != nil || string(data) != string(log) {
		return "data of " + string(data) + ", log of " + string(log)
	}
	return string(data)
}

// left returns the folders of restores next to the member's directories and in its data dir.
func (d disk) left() (all []string) {
	for _, parent := range []string{filepath.Dir(d.data), d.data, filepath.Dir(d.wal)} {
		found, _ := filepath.Glob(filepath.Join(parent, ".dr-*")) // the pattern is right
		all = append(all, found...)
	}
	return all
}

func (d disk) removeLeft() (err error) {
	for _, folder := range d.left() {
		err = errors.Join(err, os.RemoveAll(folder))
	}
	return err
}

func (d disk) plan() plan.Plan {
	return plan.Plan{
		ID: "plan1", File: "/snapshot.db", Token: "token",
		Members: []plan.Member{{Name: "m1", PeerURLs: []string{"http://127.0.0.1:2380"}}, {Name: "m2", PeerURLs: []string{"http://127.0.0.1:2382"}}},
	}
}

// work returns a task on d that builds newData.
func (d disk) work(task handoff.Task) member.Work {
	p := d.plan()
	return member.Work{Task: task, Restore: d.id, Place: plan.Into{Name: "m1", DataDir: d.data, WALDir: d.wal}, Plan: &p, Run: build}
}

// build builds newData, in the place of the restore engine.
func build(_ context.Context, p plan.Plan) (restore.Result, error) {
	r := restore.Result{
		ClusterID: "cafe", Revision: 7, BumpedTo: 1007, Keys: 3, Members: make([]restore.Restored, 1),
		Phases: []restore.Phase{{Stage: "fetch", Seconds: 1}, {Stage: "build", Seconds: 0.5}},
	}
	return r, writeMember(p.Into, newData)
}

func (d disk) do(t *testing.T, tasks ...handoff.Task) handoff.Report {
	t.Helper()
	var r handoff.Report
	for _, task := range tasks {
		r = member.Do(t.Context(), d.work(task))
		if !r.Done {
			t.Fatalf("%s: %s", task, r.Encode())
		}
	}
	return r
}

func (d disk) wantBoots(t *testing.T, want string) {
	t.Helper()
	got := d.boots()
	if got != want {
		t.Fatalf("etcd starts on %q, want %q", got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// step is a task, and the data on which etcd starts after it.
type step struct {
	task  handoff.Task
	boots string
}

// cycle returns all tasks of a restore that goes forward and back, after which nothing of it is left.
func (f form) cycle() []step {
	switch {
	case f.guarded:
		return []step{
			{handoff.DoStage, blocked}, {handoff.DoSeal, blocked}, {handoff.DoWithdraw, blocked}, {handoff.DoBack, blocked}, {handoff.DoDiscard, blocked},
			{handoff.DoStage, blocked}, {handoff.DoSeal, blocked}, {handoff.DoPlace, newData}, {handoff.DoReview, newData}, {handoff.DoWithdraw, blocked},
			{handoff.DoBack, blocked}, {handoff.DoBlock, blocked}, {handoff.DoDiscard, blocked}, {handoff.DoClean, blocked},
		}
	case f.vacant:
		return []step{
			{handoff.DoStage, blocked}, {handoff.DoSeal, blocked}, {handoff.DoWithdraw, blocked}, {handoff.DoBack, blocked},
			{handoff.DoSeal, blocked}, {handoff.DoPlace, newData}, {handoff.DoReview, newData}, {handoff.DoWithdraw, blocked},
			{handoff.DoBack, blocked}, {handoff.DoDiscard, noData}, {handoff.DoClean, noData},
		}
	}
	return []step{
		{handoff.DoStage, oldData}, {handoff.DoSeal, blocked}, {handoff.DoWithdraw, blocked}, {handoff.DoBack, oldData},
		{handoff.DoSeal, blocked}, {handoff.DoPlace, newData}, {handoff.DoReview, newData}, {handoff.DoWithdraw, blocked},
		{handoff.DoBack, oldData}, {handoff.DoDiscard, oldData}, {handoff.DoClean, oldData},
	}
}

// Each task is done once and again, on each kind of disk.
func TestTasks(t *testing.T) {
	for _, f := range append(allForms(), guardedForms()...) {
		d := newDisk(t, f)
		for _, s := range f.cycle() {
			for range 2 {
				d.do(t, handoff.DoLook, s.task)
				d.wantBoots(t, s.boots)
			}
		}
		if len(d.left()) > 0 {
			t.Errorf("%+v: left: %q", f, d.left())
		}
	}
}

// A restore that is refused leaves each disk as it was.
func TestDiscardedAfterStaging(t *testing.T) {
	for _, f := range allForms() {
		d := newDisk(t, f)
		before := d.boots()
		d.do(t, handoff.DoStage, handoff.DoDiscard, handoff.DoDiscard)
		d.wantBoots(t, before)
		if len(d.left()) > 0 {
			t.Errorf("%+v: left: %q", f, d.left())
		}
	}
}

func TestStageReportsTheNewData(t *testing.T) {
	for _, f := range allForms() {
		r := newDisk(t, f).do(t, handoff.DoStage)
		if r.Vacant != f.vacant || r.Built == nil || *r.Built != (handoff.Built{ClusterID: "cafe", Revision: 1007, Keys: 3, Seconds: 1.5}) {
			t.Errorf("%+v: %s", f, r.Encode())
		}
	}
}

// Data that was built is not built again, up to the end of the restore. Data of another plan takes its place.
func TestStageAgain(t *testing.T) {
	for _, f := range allForms() {
		for _, before := range [][]handoff.Task{{}, {handoff.DoSeal}, {handoff.DoSeal, handoff.DoPlace}} {
			d := newDisk(t, f)
			first := d.do(t, handoff.DoStage)
			d.do(t, before...)
			w := d.work(handoff.DoStage)
			w.Run = nil
			again := member.Do(t.Context(), w)
			if string(again.Encode()) != string(first.Encode()) {
				t.Errorf("%+v, after %v: %s, want %s", f, before, again.Encode(), first.Encode())
			}
			other := d.plan()
			other.ID = "plan2"
			w.Plan = &other
			w.Run = func(_ context.Context, p plan.Plan) (restore.Result, error) {
				return restore.Result{ClusterID: "beef", Members: make([]restore.Restored, 1)}, writeMember(p.Into, "other")
			}
			r := member.Do(t.Context(), w)
			if len(before) == 2 { // etcd may have started on it
				if fault.KindOf(r.Err()) != fault.Refused {
					t.Errorf("%+v, placed: %s", f, r.Encode())
				}
				d.wantBoots(t, newData)
				continue
			}
			if !r.Done || r.Built.ClusterID != "beef" || r.Vacant != f.vacant {
				t.Errorf("%+v, after %v: %s", f, before, r.Encode())
			}
			d.do(t, handoff.DoSeal, handoff.DoPlace)
			d.wantBoots(t, "other")
		}
	}
}

// An obstacle is a result, because another plan may avoid it. Another error ends the restore, or is repeated.
func TestStageMeets(t *testing.T) {
	damaged := restore.Obstructed(plan.Obstacle{Segment: 3}, fault.Mark(fault.Damaged, errors.New("segment 3 is damaged")))
	for name, c := range map[string]struct {
		err      error
		obstacle *plan.Obstacle
		kind     fault.Kind
	}{
		"damage":       {damaged, &plan.Obstacle{Segment: 3}, fault.Damaged},
		"a wrong key":  {seal.ErrWrongKey, &plan.Obstacle{Base: true, WrongKey: true}, fault.KindOf(seal.ErrWrongKey)},
		"no network":   {fault.Mark(fault.Unreachable, errors.New("no route")), nil, fault.Unreachable},
		"a full disk":  {unix.ENOSPC, nil, fault.Internal},
		"cancellation": {context.Canceled, nil, fault.Interrupted},
	} {
		for _, f := range allForms() {
			d := newDisk(t, f)
			before := d.boots()
			if f.vacant {
				before = blocked
			}
			w := d.work(handoff.DoStage)
			w.Run = func(context.Context, plan.Plan) (restore.Result, error) { return restore.Result{}, c.err }
			r := member.Do(t.Context(), w)
			if r.Error == nil || fault.KindOf(r.Error.Err()) != c.kind || (r.Obstacle == nil) != (c.obstacle == nil) ||
				r.Obstacle != nil && (*r.Obstacle != *c.obstacle || r.Vacant != f.vacant || r.Err() != nil) {
				t.Errorf("%s: %s", name, r.Encode())
			}
			d.wantBoots(t, before)
			d.do(t, handoff.DoDiscard)
			if len(d.left()) > 0 {
				t.Errorf("%s, %+v: left: %q", name, f, d.left())
			}
		}
	}
	w := newDisk(t, form{}).work(handoff.DoStage)
	ctx, cancel := context.WithCancel(t.Context())
	w.Run = func(context.Context, plan.Plan) (restore.Result, error) {
		cancel()
		return restore.Result{}, damaged
	}
	r := member.Do(ctx, w)
	if r.Obstacle != nil {
		t.Errorf("a task that was ended has met an obstacle: %s", r.Encode())
	}
}

// The new data is stale if the disk is not as it was when that data was built. Staging again cures it.
func TestSealFindsStaleData(t *testing.T) {
	for name, change := range map[string]func(d disk) error{
		"other data": func(d disk) error {
			return errors.Join(os.Rename(d.data, d.data+".bak"), writeMember(plan.Into{DataDir: d.data}, "other"))
		},
		"no data":        func(d disk) error { return os.Rename(d.data, d.data+".bak") },
		"a new disk":     func(d disk) error { return errors.Join(os.RemoveAll(d.data), os.RemoveAll(d.left()[0])) },
		"no new data":    func(d disk) error { return os.RemoveAll(filepath.Join(d.left()[0], "new")) },
		"nothing staged": func(d disk) error { return os.RemoveAll(d.left()[0]) },
	} {
		d := newDisk(t, form{})
		d.do(t, handoff.DoStage)
		must(t, change(d))
		before := d.boots()
		r := member.Do(t.Context(), d.work(handoff.DoSeal))
		if !r.Stale || r.Done || r.Err() != nil {
			t.Errorf("%s: %s", name, r.Encode())
		}
		d.wantBoots(t, before)
		d.do(t, handoff.DoWithdraw, handoff.DoBack)
		d.wantBoots(t, before)
		d.do(t, handoff.DoStage, handoff.DoSeal, handoff.DoPlace)
		d.wantBoots(t, newData)
	}
	d := newDisk(t, form{vacant: true})
	d.do(t, handoff.DoStage)
	must(t, errors.Join(os.Remove(d.data), writeMember(plan.Into{DataDir: d.data}, "empty")))
	r := member.Do(t.Context(), d.work(handoff.DoSeal))
	if !r.Stale {
		t.Errorf("an empty cluster has begun: %s", r.Encode())
	}
	d.do(t, handoff.DoStage, handoff.DoSeal, handoff.DoPlace, handoff.DoWithdraw, handoff.DoBack)
	d.wantBoots(t, "empty")
}

// TestSealChecksTheMemberAgain puts the data of another member into the data dir once the new data is built, as an operator does who copies it
// there. It is not moved aside.
func TestSealChecksTheMemberAgain(t *testing.T) {
	c := servers.Start(t, servers.Options{Version: "3.6"})
	c.Kill(t, 0)
	d := newDisk(t, form{})
	p := d.plan()
	p.Members[0].Name = "another"
	work := func(task handoff.Task) member.Work {
		w := d.work(task)
		w.Plan, w.Place.Name = &p, "another"
		return w
	}
	r := member.Do(t.Context(), work(handoff.DoStage))
	if !r.Done {
		t.Fatalf("stage: %s", r.Encode())
	}
	inside := filepath.Join(d.data, "member")
	must(t, errors.Join(os.RemoveAll(inside), os.CopyFS(inside, os.DirFS(filepath.Join(c.Members[0].DataDir, "member")))))
	r = member.Do(t.Context(), work(handoff.DoSeal))
	if fault.KindOf(r.Err()) != fault.Refused || !strings.Contains(r.Err().Error(), "belongs to another cluster") || r.Stale {
		t.Errorf("seal: %s", r.Encode())
	}
	_, err := os.Stat(filepath.Join(inside, "snap", "db"))
	must(t, err)
}

// TestStageNeedsRoom builds nothing on a disk, with or without old data, on which the new data does not fit.
func TestStageNeedsRoom(t *testing.T) {
	for _, f := range allForms() {
		d := newDisk(t, f)
		before := d.boots()
		p := d.plan()
		p.File, p.Salvage = "", &plan.Salvage{Database: &plan.DiskDatabase{Size: 1 << 60}}
		w := d.work(handoff.DoStage)
		w.Plan = &p
		r := member.Do(t.Context(), w)
		if fault.KindOf(r.Err()) != fault.Refused || !strings.Contains(r.Err().Error(), "make room") || len(d.left()) > 0 {
			t.Errorf("%+v: %s, left: %q", f, r.Encode(), d.left())
		}
		d.wantBoots(t, before)
	}
}

// Where the old data is lost, the way back leaves a file on which etcd exits, which outlives the restore. Another restore builds that member,
// and if it goes back, the file is there again.
func TestLostData(t *testing.T) {
	for name, lose := range map[string]func(d disk) error{
		"a new disk":        func(d disk) error { return errors.Join(os.RemoveAll(d.data+"/member"), d.removeLeft()) },
		"a new, empty disk": func(d disk) error { return errors.Join(os.RemoveAll(d.data), d.removeLeft()) },
		"no data dir":       func(d disk) error { return os.RemoveAll(d.data) },
		"no data":           func(d disk) error { return os.RemoveAll(d.data + "/member") },
	} {
		for _, f := range allForms() {
			if f.vacant || f.mounted && name == "no data dir" || !f.mounted && name == "no data" {
				continue
			}
			d := newDisk(t, f)
			d.do(t, handoff.DoStage)
			must(t, lose(d))
			if d.wal != "" {
				must(t, os.RemoveAll(d.wal))
			}
			r := member.Do(t.Context(), d.work(handoff.DoSeal))
			back := d.do(t, handoff.DoWithdraw, handoff.DoBack)
			if !r.Stale || !back.Vacant {
				t.Errorf("%s, %+v: seal: %s, back: %s", name, f, r.Encode(), back.Encode())
			}
			for _, task := range []handoff.Task{handoff.DoBlock, handoff.DoBlock, handoff.DoWithdraw, handoff.DoBack, handoff.DoDiscard, handoff.DoClean} {
				r := d.do(t, task)
				d.wantBoots(t, blocked)
				if task == handoff.DoBack && !r.Vacant {
					t.Errorf("%s, %+v: back: %s", name, f, r.Encode())
				}
			}
			d.wantRebuilt(t)
		}
	}
}

// wantRebuilt restores a disk without data by another restore: one that is refused, one that goes back, and one that succeeds.
func (d disk) wantRebuilt(t *testing.T) {
	t.Helper()
	d = d.as(another)
	for _, way := range [][]handoff.Task{
		{handoff.DoStage, handoff.DoDiscard},
		{handoff.DoStage, handoff.DoSeal, handoff.DoBack, handoff.DoDiscard, handoff.DoClean},
		{handoff.DoStage, handoff.DoSeal, handoff.DoPlace, handoff.DoWithdraw, handoff.DoBack, handoff.DoDiscard, handoff.DoClean},
	} {
		r := d.do(t, way[0])
		d.do(t, way[1:]...)
		d.wantBoots(t, blocked)
		if !r.Vacant || len(d.left()) > 0 {
			t.Errorf("stage: %s, left: %q", r.Encode(), d.left())
		}
	}
	d.do(t, handoff.DoStage, handoff.DoSeal, handoff.DoPlace, handoff.DoClean)
	d.wantBoots(t, newData)
}

// Other data in the place of lost data is left as it is: the task waits for a person.
func TestBlockLeavesOtherData(t *testing.T) {
	for _, f := range allForms() {
		d := newDisk(t, f)
		must(t, writeMember(plan.Into{DataDir: d.data, WALDir: d.wal}, "other"))
		r := member.Do(t.Context(), d.work(handoff.DoBlock))
		if r.Done || r.Err() != nil || !strings.Contains(r.Waiting, "move it aside") || namesACommand(r) {
			t.Errorf("%+v: %s", f, r.Encode())
		}
		d.wantBoots(t, "other")
		must(t, errors.Join(os.RemoveAll(d.data), os.RemoveAll(d.wal)))
		d.do(t, handoff.DoBlock)
		d.wantBoots(t, blocked)
	}
}

// A blocker that an operator removed is made again before anything else.
func TestRemovedBlocker(t *testing.T) {
	for _, f := range []form{{}, {vacant: true}} {
		for _, task := range []handoff.Task{handoff.DoSeal, handoff.DoWithdraw, handoff.DoBack} {
			d := newDisk(t, f)
			d.do(t, handoff.DoStage, handoff.DoSeal)
			must(t, os.Remove(d.data))
			d.do(t, task)
			want := blocked
			if task == handoff.DoBack && !f.vacant {
				want = oldData
			}
			d.wantBoots(t, want)
		}
	}
}

// namesACommand reports whether a report has a command of dr restore --replace, which a person cannot run in a Job.
func namesACommand(r handoff.Report) bool {
	text := string(r.Encode())
	return strings.Contains(text, "dr restore") || strings.Contains(text, "--replace") || strings.Contains(text, "--undo")
}

// A data dir that cannot be exchanged, or is not complete, is refused with a remedy for a restore by a manager.
func TestRefusalsNameNoCommand(t *testing.T) {
	for name, c := range map[string]struct {
		change func(d disk) error
		want   string
	}{
		"a file": {func(d disk) error { return errors.Join(os.RemoveAll(d.data), os.WriteFile(d.data, nil, 0o600)) }, "move it aside"},
		"a link": {func(d disk) error {
			return errors.Join(os.Rename(d.data+"/member/snap", d.data+"/snap"), os.Symlink("../snap", d.data+"/member/snap"))
		}, "and restore again"},
		"without logs": {func(d disk) error { return os.RemoveAll(d.data + "/member/wal") }, "and restore again"},
	} {
		d := newDisk(t, form{})
		must(t, c.change(d))
		r := member.Do(t.Context(), d.work(handoff.DoStage))
		if r.Err() == nil || !strings.Contains(r.Err().Error(), c.want) || namesACommand(r) {
			t.Errorf("%s: %s", name, r.Encode())
		}
	}
}

// While a process holds etcd's lock, nothing is moved.
func TestRunningMember(t *testing.T) {
	for _, c := range []struct {
		before []handoff.Task
		task   handoff.Task
	}{
		{[]handoff.Task{handoff.DoStage}, handoff.DoSeal},
		{[]handoff.Task{handoff.DoStage, handoff.DoSeal, handoff.DoPlace}, handoff.DoWithdraw},
		{[]handoff.Task{handoff.DoStage, handoff.DoSeal, handoff.DoPlace}, handoff.DoBack},
	} {
		d := newDisk(t, form{})
		d.do(t, c.before...)
		before := d.boots()
		db, err := os.Open(filepath.Join(d.data, "member", "snap", "db"))
		must(t, err)
		must(t, unix.Flock(int(db.Fd()), unix.LOCK_EX))
		r := member.Do(t.Context(), d.work(c.task))
		if r.Done || r.Err() != nil || !strings.Contains(r.Waiting, "etcd runs on "+d.data) {
			t.Errorf("%s: %s", c.task, r.Encode())
		}
		view := d.do(t, handoff.DoLook).View
		if !view.Running {
			t.Errorf("%s: %+v", c.task, view)
		}
		d.wantBoots(t, before)
		must(t, db.Close())
		d.do(t, c.task)
	}
}

// Another process that stages meanwhile is waited for.
func TestAnotherTask(t *testing.T) {
	t.Parallel()
	d := newDisk(t, form{})
	d.do(t, handoff.DoStage)
	lock, err := child.LockDir(d.left()[0])
	must(t, err)
	defer lock.Close()
	for _, task := range []handoff.Task{handoff.DoDiscard, handoff.DoClean} {
		r := member.Do(t.Context(), d.work(task))
		if r.Err() != nil || !strings.Contains(r.Waiting, "another dr restore") {
			t.Errorf("%s: %s", task, r.Encode())
		}
	}
}

func TestTasksThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		before []handoff.Task
		task   handoff.Task
		kind   fault.Kind
	}{
		"place, nothing is staged":   {nil, handoff.DoPlace, fault.NotFound},
		"review, nothing is staged":  {nil, handoff.DoReview, fault.NotFound},
		"place, not sealed":          {[]handoff.Task{handoff.DoStage}, handoff.DoPlace, fault.Refused},
		"place, after going back":    {[]handoff.Task{handoff.DoStage, handoff.DoSeal, handoff.DoPlace, handoff.DoBack}, handoff.DoPlace, fault.Refused},
		"seal, after going back":     {[]handoff.Task{handoff.DoStage, handoff.DoSeal, handoff.DoPlace, handoff.DoBack}, handoff.DoSeal, fault.Refused},
		"clean, the old data's only": {[]handoff.Task{handoff.DoStage, handoff.DoSeal}, handoff.DoClean, fault.Refused},
		"review, removed":            {[]handoff.Task{handoff.DoStage, handoff.DoSeal, handoff.DoPlace, handoff.DoClean}, handoff.DoReview, fault.NotFound},
	} {
		d := newDisk(t, form{})
		d.do(t, c.before...)
		before := d.boots()
		r := member.Do(t.Context(), d.work(c.task))
		if fault.KindOf(r.Err()) != c.kind || r.Done || namesACommand(r) {
			t.Errorf("%s: %s", name, r.Encode())
		}
		d.wantBoots(t, before)
	}
	for name, change := range map[string]func(*member.Work){
		"no task":     func(w *member.Work) { w.Task = "sew" },
		"no id":       func(w *member.Work) { w.Restore = "../../../etc" },
		"short id":    func(w *member.Work) { w.Restore = "01234567" },
		"no data dir": func(w *member.Work) { w.Place.DataDir = "" },
		"no plan":     func(w *member.Work) { w.Plan = nil },
		"no name":     func(w *member.Work) { w.Place.Name = "" },
		"another":     func(w *member.Work) { w.Place.Name = "m3" },
	} {
		d := newDisk(t, form{})
		w := d.work(handoff.DoStage)
		change(&w)
		r := member.Do(t.Context(), w)
		if fault.KindOf(r.Err()) != fault.Usage || len(d.left()) > 0 {
			t.Errorf("%s: %s, left: %q", name, r.Encode(), d.left())
		}
	}
}

// Data of another restore or of an operator is not touched on the way back.
func TestStrangeDataAfterPlace(t *testing.T) {
	d := newDisk(t, form{})
	d.do(t, handoff.DoStage, handoff.DoSeal, handoff.DoPlace)
	must(t, errors.Join(os.Rename(d.data, d.data+".bak"), writeMember(plan.Into{DataDir: d.data}, "strange")))
	for _, task := range []handoff.Task{handoff.DoReview, handoff.DoWithdraw, handoff.DoBack} {
		r := member.Do(t.Context(), d.work(task))
		if fault.KindOf(r.Err()) != fault.Refused {
			t.Errorf("%s: %s", task, r.Encode())
		}
	}
	d.do(t, handoff.DoDiscard)
	d.wantBoots(t, "strange")
}

func TestLook(t *testing.T) {
	d := newDisk(t, form{withLog: true})
	must(t, os.Chmod(d.data, 0o750))
	v := d.do(t, handoff.DoLook).View
	if v.State != "unstaged" || v.Running || v.Owner == nil || *v.Owner != (handoff.Owner{UID: os.Geteuid(), GID: os.Getegid(), Mode: "0750"}) ||
		v.Data.Free == 0 || v.Data.Total < v.Data.Free || v.Log == nil || v.Log.Total == 0 {
		t.Errorf("%+v", v)
	}
	r := newDisk(t, form{vacant: true}).do(t, handoff.DoLook)
	if !r.Vacant || r.View.State != "bare" || r.View.Owner != nil || r.View.Log != nil {
		t.Errorf("%s", r.Encode())
	}
}
