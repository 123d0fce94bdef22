package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
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
	"github.com/etcd-dr/etcd-dr/test/tools"
)

// hosts are three hosts on this machine, each with an etcd that a script starts and another one stops.
type hosts struct {
	job
	dir     string
	members []servers.Member
	plan    string
}

func newHosts(t *testing.T, version string) *hosts {
	t.Helper()
	h := &hosts{job: newJob(t), dir: t.TempDir()}
	h.plan = filepath.Join(h.dir, "plan.json")
	urls := servers.FreeURLs(t, 6)
	var initial []string
	for i := range 3 {
		name := fmt.Sprint("m", i+1)
		h.members = append(h.members, servers.Member{Name: name, ClientURL: urls[2*i], PeerURL: urls[2*i+1], DataDir: filepath.Join(h.dir, name)})
		initial = append(initial, name+"="+urls[2*i+1])
	}
	for i, m := range h.members {
		// The command of a dr that was killed may still run, or have started an etcd that does not serve yet.
		h.script(t, "start", i, `exec 9>%s.lock; flock 9; kill -0 $(cat %[1]s.pid) && exit; setsid %s --name %s --data-dir %s --listen-client-urls %s --advertise-client-urls %s --listen-peer-urls %s `+
			`--initial-advertise-peer-urls %s --initial-cluster %s >>%[1]s.log 2>&1 </dev/null 9>&- & echo $! >%[1]s.pid`,
			m.DataDir, tools.Path(t, "etcd-"+version, "etcd"), m.Name, m.DataDir, m.ClientURL, m.ClientURL, m.PeerURL, m.PeerURL, strings.Join(initial, ","))
		alone := m.Name + "=" + m.PeerURL
		h.script(t, "alone", i, `setsid %s --name %s --data-dir %s --listen-client-urls %s --advertise-client-urls %s --listen-peer-urls %s `+
			`--initial-advertise-peer-urls %s --initial-cluster %s >>%[3]s.log 2>&1 </dev/null & echo $! >%[3]s.pid`,
			tools.Path(t, "etcd-"+version, "etcd"), m.Name, m.DataDir, m.ClientURL, m.ClientURL, m.PeerURL, m.PeerURL, alone)
		h.script(t, "stop", i, `kill $(cat %s.pid)`, m.DataDir)
		h.run(t, "start", i)
	}
	t.Cleanup(func() {
		for i := range h.members {
			h.kill(t, i)
		}
	})
	client := h.client(t)
	for _, m := range h.members {
		eventually(t, m.Name+" serves", func() bool {
			_, err := client.Status(t.Context(), m.ClientURL)
			return err == nil
		})
	}
	return h
}

// script writes a script of a host.
func (h *hosts) script(t *testing.T, verb string, i int, format string, args ...any) {
	t.Helper()
	err := os.WriteFile(h.path(verb, i), []byte(fmt.Sprintf(format, args...)+"\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
}

func (h *hosts) path(verb string, i int) string { return filepath.Join(h.dir, fmt.Sprint(verb, i)) }

// run runs a script of a host.
func (h *hosts) run(t *testing.T, verb string, i int) {
	t.Helper()
	out, err := sh(t, h.path(verb, i))
	if err != nil {
		t.Fatalf("%s: %v: %s", verb, err, out)
	}
}

func sh(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	return exec.CommandContext(context.WithoutCancel(t.Context()), "sh", args...).CombinedOutput() // at the end of the test too
}

// kill ends the etcd of a host if one runs.
func (h *hosts) kill(t *testing.T, i int) {
	t.Helper()
	_, _ = sh(t, "-c", fmt.Sprintf(`kill -9 $(cat %s.pid) && while kill -0 $(cat %[1]s.pid); do sleep 0.1; done`, h.members[i].DataDir))
}

// client returns a client of all members.
func (h *hosts) client(t *testing.T) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, m := range h.members {
		endpoints = append(endpoints, m.ClientURL)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// into returns the command that restores on a host.
func (h *hosts) into(i int) []string {
	m := h.members[i]
	return []string{"restore", "-o", "json", "--repo", "file://" + h.repo, "--identity", h.key, "--plan", h.plan, "--into", "command",
		"--name", m.Name, "--data-dir", m.DataDir, "--endpoints", m.ClientURL, "--confirm", m.Name, "--state-dir", h.path("state", i),
		"--stop-command", "sh " + h.path("stop", i), "--start-command", "sh " + h.path("start", i)}
}

// on starts a command on a host, without variables that --plan refuses.
func (h *hosts) on(t *testing.T, args []string) *command.Process {
	t.Helper()
	return command.Start(t, nil, args...)
}

// killedAt runs the command on a host again and again, and kills it when it reaches each stage, or a later one of them if the last kill came
// late. It returns the output of the last run, which has succeeded if that kill came too late.
func (h *hosts) killedAt(t *testing.T, i int, stages ...string) command.Output {
	t.Helper()
	var out command.Output
	for n, stage := range stages {
		p := h.on(t, h.into(i))
		for event, ok := p.Next(); ok && !slices.Contains(stages[n:], event.Stage); event, ok = p.Next() {
		}
		p.Signal(t, syscall.SIGKILL)
		out = p.Wait(t)
		if out.Code == 0 {
			return out
		}
		if out.Code > 0 {
			t.Fatalf("it ended before %s: %s", stage, out)
		}
	}
	return out
}

// ended waits for the command of each host, and returns the results.
func (h *hosts) ended(t *testing.T, all ...*command.Process) (results []document.Into) {
	t.Helper()
	for _, p := range all {
		var d document.Into
		p.Wait(t).Succeeded(t, &d)
		results = append(results, d)
	}
	return results
}

// TestIntoCommand restores three hosts by one command each, in any order, killed at each stage; then all go back.
func TestIntoCommand(t *testing.T) {
	withServers(t)
	for _, version := range servers.Some(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			h := newHosts(t, version)
			client := h.client(t)
			put(t, client, "before", "x")
			command.Must(t, h.env, "backup", "--endpoints", h.members[0].ClientURL)
			put(t, client, "after", "x")
			command.Must(t, h.env, "restore", "--plan-out", h.plan)

			h.killedAt(t, 0, "pending", "planning", "staging", "fencing", "sealing")
			first := h.on(t, h.into(0))
			waits := func(event string) bool { return strings.Contains(event, "the old cluster still answers at ") }
			for event, ok := first.Next(); ok && !waits(event.Message); event, ok = first.Next() {
				if event.Stage == "placing" {
					t.Fatal("it does not wait for the others")
				}
			}
			put(t, client, "meanwhile", "x") // the others still serve
			first.Signal(t, syscall.SIGKILL)
			first.Wait(t)

			second := h.on(t, h.into(1))
			if !second.Until(1, "fencing") {
				t.Fatalf("it ended: %s", second.Wait(t))
			}
			third := h.on(t, h.into(2))
			out := h.killedAt(t, 0, "placing", "releasing", "verifying")
			if out.Code != 0 {
				out = h.on(t, h.into(0)).Wait(t)
			}
			results := make([]document.Into, 1)
			out.Succeeded(t, &results[0])
			results = append(results, h.ended(t, second, third)...)
			for i, d := range results {
				if d.State != document.IntoRestored || d.ClusterID != results[0].ClusterID || d.Keys != 1 || d.HashKV != results[0].HashKV {
					t.Errorf("host %d: %+v", i, d)
				}
			}
			wantKeysOf(t, client, "before")
			h.on(t, h.into(1)).Wait(t).Ended(t, 4, "has restored", "remove the data that it keeps")

			var undone, removed []*command.Process
			for _, d := range results {
				undone = append(undone, h.on(t, append(d.Undo[1:], "-o", "json")))
			}
			for i, d := range h.ended(t, undone...) {
				if d.State != document.IntoUndone {
					t.Errorf("host %d: %+v", i, d)
				}
			}
			wantKeysOf(t, client, "after", "before", "meanwhile")
			for _, d := range results {
				removed = append(removed, h.on(t, append(d.Clean[1:], "-o", "json")))
			}
			h.ended(t, removed...)
			wantKeysOf(t, client, "after", "before", "meanwhile")
		})
	}
}

// TestIntoCommandAfterLoss restores hosts that have lost their data, of which one does not run the command: two serve without it, and wait
// for it until they are told that it is lost. Later it comes back.
func TestIntoCommandAfterLoss(t *testing.T) {
	withServers(t)
	h := newHosts(t, servers.Versions[len(servers.Versions)-1])
	client := h.client(t)
	put(t, client, "before", "x")
	command.Must(t, h.env, "backup", "--endpoints", h.members[0].ClientURL)
	command.Must(t, h.env, "restore", "--plan-out", h.plan)
	h.on(t, append(h.into(0), "--dry-run")).Wait(t).Ended(t, 0)
	_, err := os.Stat(h.path("state", 0))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a dry run has made the directory for the progress: %v", err)
	}
	h.on(t, append(h.into(0), "--fence-only")).Wait(t).Ended(t, 2, "stop it yourself")
	for i, m := range h.members {
		h.kill(t, i)
		err := os.RemoveAll(m.DataDir)
		if err != nil {
			t.Fatal(err)
		}
	}
	wrong := h.into(0)
	wrong[12] = "m9"
	h.on(t, append(wrong, "--confirm", "m9")).Wait(t).Ended(t, 4, "runs the member m9, and the plan has")

	h.wantNoOtherCluster(t, 2)
	first, second := h.on(t, h.into(0)), h.on(t, h.into(1))
	for event, ok := first.Next(); ok && !strings.Contains(event.Message, "m3="+h.members[2].PeerURL+" has not started yet"); event, ok = first.Next() {
	}
	wantKeysOf(t, client, "before")
	h.wantWithout(t, first, second)
	third := h.on(t, h.into(2))
	h.ended(t, third)
	wantKeysOf(t, client, "before")
}

// wantNoOtherCluster has the etcd of a host begin a cluster of its own, and leaves that host out of the restore: the command waits for the end
// of that cluster, which confirms writes.
func (h *hosts) wantNoOtherCluster(t *testing.T, alone int) {
	t.Helper()
	h.run(t, "alone", alone)
	p := h.on(t, append(h.into(0), "--without", h.members[alone].Name))
	event, ok := p.Next()
	for ok && !strings.Contains(event.Message, "a cluster of its own serves") {
		event, ok = p.Next()
	}
	if !ok {
		t.Errorf("it does not wait: %s", p.Wait(t))
	}
	p.Signal(t, syscall.SIGTERM)
	p.Wait(t)
	h.kill(t, alone)
	err := os.RemoveAll(h.members[alone].DataDir)
	if err != nil {
		t.Fatal(err)
	}
}

// wantWithout ends the commands on the first two hosts, and runs them again without the third one, which is lost. They end, the backups are
// not suspended any more, and the data that is aside can be removed. A majority cannot be left out.
func (h *hosts) wantWithout(t *testing.T, waiting ...*command.Process) {
	t.Helper()
	for _, p := range waiting {
		p.Signal(t, syscall.SIGTERM)
		p.Wait(t)
	}
	h.on(t, append(h.into(0), "--without", "m2,m3")).Wait(t).Ended(t, 2, "are no quorum of 3")
	h.on(t, append(h.into(0), "--without", "m1")).Wait(t).Ended(t, 2, "runs that member")
	var again []*command.Process
	for i := range waiting {
		again = append(again, h.on(t, append(h.into(i), "--without", "m3")))
	}
	var removed []*command.Process
	for i, d := range h.ended(t, again...) {
		if d.State != document.IntoRestored || !slices.Equal(d.Without, []string{"m3"}) {
			t.Errorf("host %d: %+v", i, d)
		}
		removed = append(removed, h.on(t, append(d.Clean[1:], "-o", "json")))
	}
	h.ended(t, removed...)
	resumed := command.Must(t, h.env, "resume")
	if !strings.Contains(resumed, "is not suspended") {
		t.Errorf("the backups were suspended: %s", resumed)
	}
}

// wantKeysOf fails the test unless the cluster has these keys. Members that have just started may have no leader yet.
func wantKeysOf(t *testing.T, client *clientv3.Client, want ...string) {
	t.Helper()
	var keys []string
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		var got *clientv3.GetResponse
		got, err = client.Get(t.Context(), "", clientv3.WithPrefix())
		if err == nil {
			for _, kv := range got.Kvs {
				keys = append(keys, string(kv.Key))
			}
			break
		}
	}
	if err != nil || !slices.Equal(keys, want) {
		t.Errorf("keys %q, %v, want %q", keys, err, want)
	}
}
