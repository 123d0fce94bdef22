package e2e

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// TestReplaceAndUndo restores a member in the place of its data: staged while it runs, exchanged when it is stopped, and taken back.
func TestReplaceAndUndo(t *testing.T) {
	withServers(t)
	for _, version := range servers.Some(t) {
		for _, withLog := range []bool{false, true} {
			name := version
			o := servers.Options{Version: version}
			if withLog {
				name += " with --wal-dir"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				wal := ""
				if withLog {
					wal = filepath.Join(t.TempDir(), "wal")
					o.ExtraArgs = []string{"--wal-dir", wal}
				}
				replaceAndUndo(t, servers.Start(t, o), wal)
			})
		}
	}
}

func replaceAndUndo(t *testing.T, c *servers.Cluster, wal string) {
	t.Helper()
	j := newJob(t)
	put(t, c.Client(t), "before", "x")
	j.backUp(t, c)
	put(t, c.Client(t), "after", "x")

	dir := c.Members[0].DataDir
	args := []string{"restore", "-o", "json", "--replace", "--data-dir", dir}
	if wal != "" {
		args = append(args, "--wal-dir", wal)
	}
	command.Run(t, j.env, append(args, "--name", "m2", "--initial-cluster", "m2="+c.Members[0].PeerURL)...).
		Ended(t, 4, "belongs to member m1, not to m2")
	command.Run(t, j.env, args...).Ended(t, 4, "stop etcd, then run the same command again")
	wantKeys(t, c, "after", "before")
	c.Stop(t, 0)

	var replaced document.Replaced
	second := command.Run(t, j.env, args...)
	second.Succeeded(t, &replaced)
	if strings.Contains(second.Stdout, `"event":{"stage":"fetch"`) || !strings.Contains(second.Stdout, "continues with the data of restore") {
		t.Errorf("the second run fetched again:\n%s", second.Stdout)
	}
	r := replaced.Replaced
	if r.State != "placed" || len(r.Undo) == 0 {
		t.Errorf("result %+v", r)
	}
	c.Restart(t)
	wantKeys(t, c, "before")
	put(t, c.Client(t), "restored", "x")

	command.Run(t, j.env, r.Undo[1:]...).Ended(t, 4, "stop etcd")
	c.Stop(t, 0)
	command.Must(t, j.env, r.Undo[1:]...)
	c.Restart(t)
	wantKeys(t, c, "after", "before")
	command.Must(t, j.env, r.Clean[1:]...)
	for _, dir := range []string{dir, wal} {
		left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".dr-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left: %q, %v", left, err)
		}
	}
	wantKeys(t, c, "after", "before")
}

// wantKeys checks that a cluster of one member has these keys and no others.
func wantKeys(t *testing.T, c *servers.Cluster, want ...string) {
	t.Helper()
	got, err := c.Client(t).Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range got.Kvs {
		keys = append(keys, string(kv.Key))
	}
	if !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
}

// TestReplaceOnEveryHost restores all members of a cluster in their places, from one plan.
func TestReplaceOnEveryHost(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{Members: 3})
	j := newJob(t)
	put(t, c.Client(t), "before", "x")
	j.backUp(t, c)
	put(t, c.Client(t), "after", "x")

	dirOf := func(i int) []string { return []string{"--name", c.Members[i].Name, "--data-dir", c.Members[i].DataDir} }
	command.Run(t, j.env, append([]string{"restore", "--replace"}, dirOf(0)...)...).Ended(t, 2, "--plan-out")
	plan := filepath.Join(t.TempDir(), "plan.json")
	command.Must(t, j.env, "restore", "--plan-out", plan)
	command.Run(t, j.env, "restore", "--replace", "--plan", plan, "--name", "m1", "--data-dir", c.Members[1].DataDir).
		Ended(t, 4, "belongs to member m2, not to m1")
	c.Stop(t, 0)
	args := append([]string{"restore", "-o", "json", "--replace", "--plan", plan}, dirOf(0)...)
	command.Run(t, j.env, args...).Ended(t, 4, "still answers")
	c.Restart(t, 0)
	wantKeys(t, c, "after", "before")
	c.StopAll(t)
	for i := range 2 {
		command.Must(t, j.env, append([]string{"restore", "--replace", "--plan", plan}, dirOf(i)...)...)
	}
	c.Restart(t, 0, 1)
	put(t, c.Client(t), "restored", "x")
	// Members of the restored cluster may answer: the last host joins them.
	command.Must(t, j.env, append([]string{"restore", "--replace", "--plan", plan}, dirOf(2)...)...)
	c.Restart(t)
	wantKeys(t, c, "before", "restored")
	_, err := os.Stat(filepath.Join(c.Members[0].DataDir, "member", "snap", "db"))
	if err != nil {
		t.Error(err)
	}
}

// TestReplaceIsKilled kills dr at or soon after a stage of a restore in place. Afterwards the old data comes back whole, or the
// restore is completed.
func TestReplaceIsKilled(t *testing.T) {
	withServers(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, seed))
	c := servers.Start(t, servers.Options{})
	j := newJob(t)
	put(t, c.Client(t), "before", "x")
	j.backUp(t, c)
	put(t, c.Client(t), "after", "x")
	c.Stop(t, 0)
	dir := c.Members[0].DataDir
	old := content(t, dir)
	args := []string{"restore", "--replace", "--data-dir", dir}
	planned := command.Must(t, j.env, append(args, "--dry-run")...)
	if !strings.Contains(planned, "the old data moves to "+filepath.Join(filepath.Dir(dir), ".dr-swap-m1-")) {
		t.Errorf("the plan:\n%s", planned)
	}
	stages := []string{"fetch", "build", "rename", "replace"}
	killed := 0
	for i := range 8 {
		p := command.Start(t, j.env, append(slices.Clone(args), "-o", "json")...)
		if p.Until(1, stages[i%len(stages)]) { // a restore that continues an earlier one has no such stage
			time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
			p.Signal(t, syscall.SIGKILL)
		}
		if p.Wait(t).Code == -1 {
			killed++
		}
		for _, id := range swaps(t, dir) {
			out := command.Run(t, j.env, "restore", "--undo", id, "--data-dir", dir)
			if out.Code != 0 && !strings.Contains(out.Stderr, "no restore "+id) && !strings.Contains(out.Stderr, "undo that one first") {
				t.Fatalf("seed %d: undo: %s", seed, out.Stderr)
			}
		}
		got := content(t, dir)
		if !maps.Equal(got, old) {
			t.Fatalf("seed %d: the data dir has changed", seed)
		}
	}
	if killed == 0 {
		t.Fatalf("seed %d: every restore ended before its kill", seed)
	}
	command.Must(t, j.env, args...)
	again := command.Must(t, j.env, args...)
	n := len(swaps(t, dir))
	if n == 0 || !strings.Contains(again, "replaced the data") {
		t.Errorf("the command again: %d restores\n%s", n, again)
	}
	c.Restart(t)
	wantKeys(t, c, "before")
}

// TestReplaceTwice restores a member twice, with writes after each. The restores are undone from the last to the first.
func TestReplaceTwice(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{})
	j := newJob(t)
	put(t, c.Client(t), "before", "x")
	j.backUp(t, c)
	put(t, c.Client(t), "original", "x")
	replace := func(then string) document.Swap {
		c.Stop(t, 0)
		r := command.Result[document.Replaced](t, j.env, "restore", "latest", "--replace", "--data-dir", c.Members[0].DataDir)
		c.Restart(t)
		wantKeys(t, c, "before")
		put(t, c.Client(t), then, "x")
		return r.Replaced
	}
	first, second := replace("first"), replace("second")
	c.Stop(t, 0)
	command.Run(t, j.env, first.Undo[1:]...).Ended(t, 4, "undo that one first: "+strings.Join(second.Undo, " "))
	for _, back := range []struct {
		undo []string
		keys []string
	}{{second.Undo, []string{"before", "first"}}, {first.Undo, []string{"before", "original"}}} {
		command.Must(t, j.env, back.undo[1:]...)
		c.Restart(t)
		wantKeys(t, c, back.keys...)
		c.Stop(t, 0)
	}
	command.Must(t, j.env, first.Clean[1:]...)
	command.Must(t, j.env, second.Clean[1:]...)
	c.Restart(t)
	wantKeys(t, c, "before", "original")
}

// swaps returns the ids of the restores in place of a data dir.
func swaps(t *testing.T, dir string) (ids []string) {
	t.Helper()
	prefix := filepath.Join(filepath.Dir(dir), ".dr-swap-"+filepath.Base(dir)+"-")
	folders, err := filepath.Glob(prefix + "????????")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		ids = append(ids, strings.TrimPrefix(folder, prefix))
	}
	return ids
}
