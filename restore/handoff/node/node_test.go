package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/filesystem"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/node"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

var planned = plan.Plan{Members: []plan.Member{
	{Name: "m1", PeerURLs: []string{"http://a:1", "http://a:2"}}, {Name: "m2", PeerURLs: []string{"http://b:1"}},
}}

func TestInspectFindsAnotherMember(t *testing.T) {
	for name, test := range map[string]struct {
		own  node.Member
		says string // "": no finding
	}{
		"the plan's":         {node.Member{Name: "m1", PeerURLs: []string{"http://a:2", "http://a:1"}}, ""},
		"of unknown URLs":    {node.Member{Name: "m2"}, ""},
		"of other URLs":      {node.Member{Name: "m2", PeerURLs: []string{"http://c:1"}}, "runs m2 with the peer URLs http://c:1, and the plan has http://b:1"},
		"none of the plan's": {node.Member{Name: "m3"}, "runs the member m3, and the plan has m1=http://a:1,m1=http://a:2,m2=http://b:1"},
	} {
		test.own.DataDir = t.TempDir()
		m := &node.Manager{Service: &node.Commands{Own: test.own}, Plan: planned}
		h, err := m.Inspect(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case test.says == "" && len(h.Findings) > 0, test.says != "" && (len(h.Findings) != 1 || !h.Findings[0].Refuses || !strings.Contains(h.Findings[0].Text, test.says)):
			t.Errorf("%s: %+v", name, h.Findings)
		}
		if h.Members[0].Fresh {
			t.Errorf("%s: the data dir exists, and counts as missing", name)
		}
	}
}

// TestLostDataDir checks that a data dir that was lost stays blocked, and that the next restore builds it for the user that runs etcd.
func TestLostDataDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etcd")
	own := node.Member{Name: "m1", DataDir: dir, Owner: &node.Owner{UID: os.Geteuid(), GID: os.Getegid()}}
	if os.Geteuid() == 0 {
		own.Owner = &node.Owner{UID: 1234, GID: 2345}
	}
	m := &node.Manager{
		Service: &node.Commands{Own: own}, Plan: planned,
		Run: func(context.Context, plan.Plan) (restore.Result, error) { return restore.Result{}, fault.Damaged },
	}
	h, err := m.Inspect(t.Context())
	must(t, err)
	_, err = m.Do(t.Context(), handoff.Record{ID: "0123456789abcdef", Handoff: h, Lost: []string{"m1"}}, handoff.DoBlock)
	must(t, err)
	later := handoff.Record{ID: "fedcba9876543210", Handoff: h, Plan: &planned}
	for _, task := range []handoff.Task{handoff.DoStage, handoff.DoDiscard} {
		_, err = m.Do(t.Context(), later, task)
		info, statErr := os.Stat(filepath.Join(dir, "member"))
		must(t, statErr)
		uid, gid, ownerErr := filesystem.OwnerOf(dir)
		must(t, ownerErr)
		if (err != nil) != (task == handoff.DoStage) || !info.Mode().IsRegular() || (node.Owner{UID: uid, GID: gid}) != *own.Owner {
			t.Errorf("%s: %v; member is a file: %t, the owner is %d:%d", task, err, info.Mode().IsRegular(), uid, gid)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRecords(t *testing.T) {
	r := node.Records{Dir: filepath.Join(t.TempDir(), "new")}
	unlock, err := r.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	impatient, end := context.WithCancel(t.Context())
	end()
	_, err = r.Lock(impatient)
	if !errors.Is(err, fault.Busy) {
		t.Errorf("a second lock: %v", err)
	}
	begun := handoff.Record{ID: "0123456789abcdef", Step: handoff.Plan, Met: []handoff.Met{}}
	later := begun
	later.Step = handoff.Stage
	ended := later
	ended.Step = handoff.None
	for _, step := range []struct {
		before, after handoff.Record
		fails         bool
	}{
		{begun, later, true}, {handoff.Record{}, begun, false}, {handoff.Record{}, later, true}, {begun, later, false}, {later, ended, false},
	} {
		err := r.Save(t.Context(), step.before, step.after)
		if errors.Is(err, fault.Busy) != step.fails || err != nil && !step.fails {
			t.Errorf("from %q to %q: %v", step.before.Step, step.after.Step, err)
		}
	}
	_, err = r.Load(t.Context(), begun.ID)
	if !errors.Is(err, fault.NotFound) {
		t.Errorf("after the end: %v", err)
	}
	time.AfterFunc(300*time.Millisecond, unlock)
	unlock, err = r.Lock(t.Context())
	if err != nil {
		t.Fatalf("after the unlock: %v", err)
	}
	unlock()
}

// TestCommandsThatFail checks that a command that fails is an error with its output, and is not repeated at once.
func TestCommandsThatFail(t *testing.T) {
	c := &node.Commands{Own: node.Member{Name: "m1", DataDir: t.TempDir()}, ToStart: "echo no such etcd >&2; exit 3"}
	_, err := c.Start(t.Context())
	if !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "exit status 3: no such etcd: correct the command") {
		t.Errorf("got %v", err)
	}
	p, err := c.Start(t.Context())
	if err != nil || p.Done || p.Waiting == "" {
		t.Errorf("right after it: %+v, %v", p, err)
	}
	for _, act := range []func(context.Context) (handoff.Progress, error){c.Stop, c.Enable} {
		p, err := act(t.Context())
		if err != nil || !p.Done {
			t.Errorf("an etcd that does not run: %+v, %v", p, err)
		}
	}
}

// TestStopCommandIsNotRepeatedAtOnce checks an etcd that closes slowly: its stop command runs once, and may fail if etcd has ended meanwhile.
func TestStopCommandIsNotRepeatedAtOnce(t *testing.T) {
	dir, lock := lockedData(t)
	runs := filepath.Join(t.TempDir(), "runs")
	c := &node.Commands{Own: node.Member{Name: "m1", DataDir: dir}, ToStop: "echo >>" + runs}
	for range 3 {
		p, err := c.Stop(t.Context())
		if err != nil || p.Done || p.Waiting != "etcd is being stopped" {
			t.Errorf("while etcd runs: %+v, %v", p, err)
		}
	}
	text, err := os.ReadFile(runs)
	if err != nil || len(text) != 1 {
		t.Errorf("the command ran %d times: %v", len(text), err)
	}
	failing := &node.Commands{Own: c.Own, ToStop: "exit 3"}
	_, err = failing.Stop(t.Context())
	if !errors.Is(err, fault.Usage) {
		t.Errorf("a command that fails while etcd runs: %v", err)
	}
	lock.Close()
	p, err := c.Stop(t.Context())
	if err != nil || !p.Done {
		t.Errorf("after etcd's end: %+v, %v", p, err)
	}
}

// lockedData returns a data dir whose database is locked as etcd locks it, until the file is closed.
func lockedData(t *testing.T) (dir string, lock *os.File) {
	t.Helper()
	dir = t.TempDir()
	database := filepath.Join(dir, "member", "snap", "db")
	must(t, os.MkdirAll(filepath.Dir(database), 0o700))
	lock, err := os.Create(database)
	must(t, err)
	t.Cleanup(func() { lock.Close() })
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	return dir, lock
}

// idle is a Service that stops and starts at once.
type idle struct{ *node.Commands }

func (idle) Stop(context.Context) (handoff.Progress, error) { return handoff.Progress{Done: true}, nil }

func (idle) Start(context.Context) (handoff.Progress, error) {
	return handoff.Progress{Done: true}, nil
}

// TestFenceSeesAnotherEtcd checks that Fence does not return while an etcd that the service does not know uses the data.
func TestFenceSeesAnotherEtcd(t *testing.T) {
	dir, _ := lockedData(t)
	ctx, cancel := context.WithCancel(t.Context())
	var why string
	err := node.Fence(ctx, idle{&node.Commands{Own: node.Member{DataDir: dir}}}, func(reason string) {
		why = reason
		cancel()
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(why, "another process still uses "+dir) {
		t.Errorf("%v, it waits for %q", err, why)
	}
}

// TestSealWaitsForOldMembers checks that no data is exchanged while a member of the old cluster answers, also one that is left out if it is a quorum by
// itself.
func TestSealWaitsForOldMembers(t *testing.T) {
	e := servers.Start(t, servers.Options{Version: "3.6"})
	at := e.Members[0]
	own := plan.Member{Name: at.Name, PeerURLs: []string{at.PeerURL}}
	other := plan.Member{Name: "other", PeerURLs: []string{"http://192.0.2.1:2380"}}
	for name, c := range map[string]struct {
		members []plan.Member
		without []string
		want    string
	}{
		"a member":              {[]plan.Member{own}, nil, "a member of the old cluster still answers at " + at.ClientURL},
		"one that serves alone": {[]plan.Member{own, other}, []string{at.Name}, "at " + at.ClientURL + " a cluster of its own serves"},
	} {
		p := plan.Plan{Members: c.members, Old: plan.Old{ClientURLs: []string{at.ClientURL}}}
		m := &node.Manager{
			Service: &node.Commands{Own: node.Member{Name: "x", DataDir: t.TempDir()}}, Plan: p, Without: c.without,
			Access: func(context.Context) (cluster.Config, error) { return cluster.Config{}, nil },
		}
		h := handoff.Handoff{Members: []handoff.Member{{Member: other, DataDir: t.TempDir()}}}
		all, err := m.Do(t.Context(), handoff.Record{ID: "0123456789abcdef", Plan: &p, Handoff: h}, handoff.DoSeal)
		if err != nil || len(all) != 1 || all[0].Done || !strings.HasPrefix(all[0].Waiting, c.want) {
			t.Errorf("%s: %+v, %v; want %q", name, all, err, c.want)
		}
	}
}

// enabled is an idle Service that notes whether it was only enabled.
type enabled struct {
	idle
	only *bool
}

func (e enabled) Enable(context.Context) (handoff.Progress, error) {
	*e.only = true
	return handoff.Progress{Done: true}, nil
}

// TestReturnStartsOnlyWhatRan goes back to a service that was stopped before the restore: it is not started.
func TestReturnStartsOnlyWhatRan(t *testing.T) {
	var only bool
	m := &node.Manager{Service: enabled{idle{&node.Commands{}}, &only}}
	for saved, want := range map[string]bool{"": true, "running": false} {
		only = false
		p, err := m.Return(t.Context(), handoff.Handoff{Saved: saved})
		if err != nil || !p.Done || only != want {
			t.Errorf("saved %q: %+v, %v; it is only enabled: %t", saved, p, err, only)
		}
	}
}

// TestUnfenceStartsNoEmptyCluster checks that Unfence starts no etcd that has no data, unless it may be empty, and none that would exit.
func TestUnfenceStartsNoEmptyCluster(t *testing.T) {
	for name, test := range map[string]struct {
		make                func(dir string) error
		starts, startsEmpty bool // without and with empty
	}{
		"no data dir":       {func(string) error { return nil }, false, true},
		"an empty data dir": {func(dir string) error { return os.Mkdir(dir, 0o700) }, false, true},
		"a file":            {func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, false, false},
		"a file in its place": {func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "member"), nil, 0o600))
		}, false, false},
		"the data of a member": {func(dir string) error { return os.MkdirAll(filepath.Join(dir, "member"), 0o700) }, true, true},
	} {
		dir := filepath.Join(t.TempDir(), "etcd")
		must(t, test.make(dir))
		for empty, starts := range map[bool]bool{false: test.starts, true: test.startsEmpty} {
			err := node.Unfence(t.Context(), idle{&node.Commands{Own: node.Member{DataDir: dir}}}, empty, nil)
			if starts != (err == nil) || !starts && !errors.Is(err, fault.Refused) {
				t.Errorf("%s: it may be empty: %t: %v", name, empty, err)
			}
		}
	}
}

func TestRefuseOthers(t *testing.T) {
	for folder, says := range map[string]string{
		"var/lib/rancher/k3s/server/db/etcd": "run k3s server --cluster-reset", "var/lib/rancher/rke2/server/db/etcd": "run rke2 server --cluster-reset",
		"system/state": "run talosctl bootstrap",
	} {
		root := t.TempDir()
		must(t, node.RefuseOthers(root))
		must(t, os.MkdirAll(filepath.Join(root, folder), 0o700))
		err := node.RefuseOthers(root)
		if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), says) {
			t.Errorf("a host with %s: %v", folder, err)
		}
	}
}
