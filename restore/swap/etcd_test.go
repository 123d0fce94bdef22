package swap_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/swap"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// Every version of etcd refuses to start on every state with a blocker, although it may begin a new cluster, and changes nothing.
func TestEtcdRefusesBlockers(t *testing.T) {
	for _, version := range servers.Versions {
		for _, f := range forms {
			t.Run(version+" "+string(f), func(t *testing.T) {
				t.Parallel()
				d := newDisk(t, f)
				d.stage(t)
				forward, back := []swap.Goal{swap.Seal, swap.Place}, []swap.Goal{swap.Undo}
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

// wantRefused starts etcd and waits until it exits.
func (d disk) wantRefused(t *testing.T, version string) {
	t.Helper()
	before := d.content(t)
	url := servers.FreeURLs(t, 2)
	args := []string{
		"--name", "m1", "--data-dir", d.data, "--listen-client-urls", url[0], "--advertise-client-urls", url[0],
		"--listen-peer-urls", url[1], "--initial-advertise-peer-urls", url[1], "--initial-cluster", "m1=" + url[1],
		"--initial-cluster-state", "new",
	}
	if d.wal != "" {
		args = append(args, "--wal-dir", d.wal)
	}
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
	cmd := exec.CommandContext(ctx, servers.Tool(t, version, "etcd"), args...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Fatalf("etcd ended with %v:\n%s", err, out)
	}
	if after := d.content(t); !slices.Equal(before, after) {
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
				for _, do := range []func() error{s.Seal, func() error { return s.Switch(t.Context(), nil) }} {
					if err := do(); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "stop etcd") {
						t.Errorf("error %v", err)
					}
				}
				wantState(t, s, swap.Staged)
				c.Kill(t, 0)
				if err := s.Seal(); err != nil {
					t.Fatal(err)
				}
				if err := s.Undo(); err != nil {
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
			if err := os.WriteFile(d.data, []byte("x"), 0o600); err != nil {
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
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(to, from); err != nil {
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

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}
