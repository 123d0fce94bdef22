package swap_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/restore/swap"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// Every version of etcd refuses to start on every state with a blocker, although it may begin a new cluster, and changes nothing.
func TestEtcdRefusesBlockers(t *testing.T) {
	for _, version := range servers.Versions {
		for _, f := range allForms {
			t.Run(version+" "+string(f), func(t *testing.T) {
				t.Parallel()
				d := newDisk(t, f)
				d.stage(t)
				if f.isVacant() {
					d.wantRefused(t, version)
				}
				forward, back := []swap.Goal{swap.Close, swap.Place}, []swap.Goal{swap.Withdraw, swap.Undo}
				for _, way := range [][]swap.Goal{forward, back} {
					for d.walk(t, way, 1) > 0 {
						if d.boots(t) == "" {
							d.wantRefused(t, version)
						}
					}
				}
			})
		}
	}
}

// etcdArgs returns the flags of an etcd on d that may begin a new cluster.
func (d disk) etcdArgs(url []string) []string {
	args := []string{
		"--name", "m1", "--data-dir", d.data, "--listen-client-urls", url[0], "--advertise-client-urls", url[0],
		"--listen-peer-urls", url[1], "--initial-advertise-peer-urls", url[1], "--initial-cluster", "m1=" + url[1],
		"--initial-cluster-state", "new",
	}
	if d.wal != "" {
		args = append(args, "--wal-dir", d.wal)
	}
	return args
}

// A supervisor starts etcd while dr holds the locks of the old data. That etcd has the old database open and waits for its lock. It exits
// without having read the new log.
func TestEtcdThatWaitsForTheOldDatabase(t *testing.T) {
	for _, version := range servers.Versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := servers.Start(t, servers.Options{Version: version})
			d := disk{form: plain, data: c.Members[0].DataDir}
			c.Kill(t, 0)
			d.stage(t)
			s := d.open(t)
			release, err := s.HoldLocks()
			if err != nil {
				t.Fatal(err)
			}
			var words strings.Builder
			etcd := exec.Command(servers.Tool(t, version, "etcd"), d.etcdArgs(servers.FreeURLs(t, 2))...)
			etcd.Dir = t.TempDir()
			etcd.Stdout, etcd.Stderr = &words, &words
			startErr := etcd.Start()
			if startErr != nil {
				t.Fatal(startErr)
			}
			t.Cleanup(func() { _ = etcd.Process.Kill() })
			waitOpen(t, etcd.Process.Pid, filepath.Join(d.data, "member", "snap", "db"))
			must(t, s.CloseHeld)
			release()
			for err = s.Place(); errors.Is(err, fault.Refused); err = s.Place() { // a slow machine: etcd has not exited yet
				wantState(t, s, swap.Closed)
			}
			if err != nil {
				t.Fatal(err)
			}
			err = etcd.Wait()
			if err == nil {
				t.Errorf("etcd ended without an error:\n%s", &words)
			}
			if strings.Contains(words.String(), "0.wal") {
				t.Errorf("etcd has seen the new log:\n%s", &words)
			}
			d.wantBoots(t, newData)
		})
	}
}

// waitOpen waits until a process has file open.
func waitOpen(t *testing.T, pid int, file string) {
	t.Helper()
	for t.Context().Err() == nil {
		descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil || len(descriptors) == 0 {
			t.Fatalf("etcd has exited: %v", err)
		}
		for _, d := range descriptors {
			to, err := os.Readlink(d)
			if err == nil && to == file {
				return
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// wantRefused starts etcd and waits until it exits.
func (d disk) wantRefused(t *testing.T, version string) {
	t.Helper()
	before := d.content(t)
	url := servers.FreeURLs(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // an etcd that serves would never exit
		for ctx.Err() == nil {
			r, err := http.Get(url[0] + "/version")
			if err == nil {
				r.Body.Close()
				t.Error("etcd serves")
				cancel()
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	cmd := exec.CommandContext(ctx, servers.Tool(t, version, "etcd"), d.etcdArgs(url)...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Fatalf("etcd ended with %v:\n%s", err, out)
	}
	after := d.content(t)
	if !slices.Equal(before, after) {
		t.Errorf("etcd changed %q to %q", before, after)
	}
}

// content returns the paths in the disk's directories.
func (d disk) content(t *testing.T) (paths []string) {
	t.Helper()
	for _, dir := range []string{d.data, d.wal} {
		if dir == "" {
			continue
		}
		err := filepath.Walk(filepath.Dir(dir), func(path string, info os.FileInfo, err error) error {
			paths = append(paths, path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// A member that runs is not touched; etcd's own locks show it.
func TestRunningMemberIsRefused(t *testing.T) {
	for _, version := range servers.Versions {
		for _, f := range []form{plain, withLog} {
			t.Run(version+" "+string(f), func(t *testing.T) {
				t.Parallel()
				d := disk{form: f}
				var o servers.Options
				if f == withLog {
					d.wal = filepath.Join(t.TempDir(), "wal")
					o.ExtraArgs = []string{"--wal-dir", d.wal}
				}
				o.Version = version
				c := servers.Start(t, o)
				d.data = c.Members[0].DataDir
				d.stage(t)
				s := d.open(t)
				v, err := s.Look()
				if err != nil || !v.Running {
					t.Errorf("running %t, %v", v.Running, err)
				}
				for _, do := range []func() error{s.CloseLive, func() error { return s.Switch(t.Context(), nil) }} {
					err := do()
					if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "stop etcd") {
						t.Errorf("error %v", err)
					}
				}
				wantState(t, s, swap.Staged)
				c.Kill(t, 0)
				err = s.CloseLive()
				if err != nil {
					t.Fatal(err)
				}
				err = s.Undo()
				if err != nil {
					t.Fatal(err)
				}
				c.Restart(t)
			})
		}
	}
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		form   form
		change func(t *testing.T, d *disk)
		want   string // in the error; "": none
	}{
		"plain":       {form: plain},
		"with a log":  {form: withLog},
		"no data dir": {plain, func(t *testing.T, d *disk) { remove(t, d.data) }, "restore without --replace"},
		"a file": {plain, func(t *testing.T, d *disk) {
			remove(t, d.data)
			err := os.WriteFile(d.data, []byte("x"), 0o600)
			if err != nil {
				t.Fatal(err)
			}
		}, "is not a directory"},
		"no log":              {plain, func(t *testing.T, d *disk) { remove(t, filepath.Join(d.data, "member", "wal")) }, "name etcd's --wal-dir"},
		"--wal-dir forgotten": {withLog, func(_ *testing.T, d *disk) { d.wal = "" }, "name etcd's --wal-dir"},
		"--wal-dir too much":  {plain, func(t *testing.T, d *disk) { d.wal = t.TempDir() }, "omit --wal-dir"},
		"another --wal-dir":   {withLog, func(t *testing.T, d *disk) { d.wal = t.TempDir() }, "has no log"},
		"a link": {plain, func(t *testing.T, d *disk) {
			from := filepath.Join(d.data, "member", "wal")
			to := filepath.Join(t.TempDir(), "wal")
			err := os.Rename(from, to)
			if err != nil {
				t.Fatal(err)
			}
			err = os.Symlink(to, from)
			if err != nil {
				t.Fatal(err)
			}
		}, "is a symbolic link"},
	} {
		d := newDisk(t, c.form)
		if c.change != nil {
			c.change(t, &d)
		}
		err := d.open(t).Check(t.Context(), d.plan())
		if c.want == "" && err != nil || c.want != "" && (fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	err := newDisk(t, plain).open(t).CheckSpace(1<<60, 0)
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "make room") {
		t.Errorf("no room: error %v", err)
	}
}

// TestSpaceNextToARunningMember checks that more must be free next to a member that runs, whose disk the restore must not fill, and that the
// disk of the log counts.
func TestSpaceNextToARunningMember(t *testing.T) {
	d := newDisk(t, withLog)
	s := d.open(t)
	v, err := s.Look()
	if err != nil {
		t.Fatal(err)
	}
	wantRefused(t, s.CheckSpace(0, 1<<60), "the disk of "+d.wal)
	most := v.Data.Free - v.Data.Free/10 // other processes use the disk too
	must(t, func() error { return s.CheckSpace(most, 0) })
	db, err := os.Open(filepath.Join(d.data, "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	must(t, func() error { return unix.Flock(int(db.Fd()), unix.LOCK_EX) })
	wantRefused(t, s.CheckSpace(most, 0), "make room, or stop etcd first")
	must(t, func() error { return s.CheckSpace(1<<10, 1<<10) })
}

// TestCheckOfLostData loses the data of a member while the others serve. Its etcd exits, and leaves a database without a log. That is not
// the log of --wal-dir, which Check would refuse.
func TestCheckOfLostData(t *testing.T) {
	for _, version := range servers.Some(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := servers.Start(t, servers.Options{Version: version, Members: 3})
			lost := c.Members[0]
			for tries := 0; lost.PID() != 0; tries++ { // one whose peers do not answer within its second waits for them instead
				if tries == 5 {
					t.Fatal("etcd runs without its data")
				}
				c.Kill(t, 0)
				remove(t, lost.DataDir)
				c.Launch(t, 0)
				for end := time.Now().Add(time.Minute); lost.PID() != 0 && time.Now().Before(end); {
					time.Sleep(20 * time.Millisecond)
				}
			}
			d := disk{form: plain, data: lost.DataDir}
			err := d.open(t).Check(t.Context(), d.plan())
			if err != nil {
				t.Error(err)
			}
			d.stage(t)
			must(t, d.open(t).CloseLive)
			must(t, d.open(t).Place)
			d.wantBoots(t, newData)
		})
	}
}

// TestDataOfAnotherClusterIsRefused points a restore at the data of a member of another cluster, at first and, once the new data is built, before the
// exchange.
func TestDataOfAnotherClusterIsRefused(t *testing.T) {
	c := servers.Start(t, servers.Options{Version: "3.6"})
	c.Kill(t, 0)
	d := disk{form: plain, data: c.Members[0].DataDir}
	p := d.plan()
	p.Members[0].Name, p.Into.Name = "another", "another"
	err := d.open(t).Check(t.Context(), p)
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "belongs to another cluster") {
		t.Errorf("at first: %v", err)
	}
	stage(t, d.open(t), p, newData)
	err = d.open(t).CheckLive(t.Context())
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "belongs to another cluster") {
		t.Errorf("before the exchange: %v", err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	err := os.RemoveAll(path)
	if err != nil {
		t.Fatal(err)
	}
}
