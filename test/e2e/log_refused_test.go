package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// TestLogNamesThatBeginAlike has clusters whose names begin alike in one repository. None ever gets a byte of
// another's.
func TestLogNamesThatBeginAlike(t *testing.T) {
	withServers(t)
	first := newJob(t)
	jobs := map[string]job{}
	clients := map[string]*clientv3.Client{}
	var agents []*agent.Agent
	for i, names := range [][]string{{"a", "cluster10"}, {"a0", "cluster1"}} {
		source := servers.Start(t, servers.Options{})
		for _, name := range names {
			j := first
			j.env = append(append([]string{}, first.env...), "DR_CLUSTER="+name)
			a := j.archiving(t, source, 0)
			jobs[name], clients[name], agents = j, source.Client(t), append(agents, a)
			j.firstWindow(t, clients[name], a)
		}
		for n := range 50 {
			put(t, clients[names[0]], fmt.Sprint("key/", n), fmt.Sprint("of server ", i))
		}
	}
	for _, a := range agents {
		agent.CatchUp(t, a)
		a.Stop(t)
	}
	for name, j := range jobs {
		j.wantRestored(t, live(t, clients[name], 0))
		list, _ := j.list(t)
		if len(list.Backups) != 1 || len(list.Windows) != 1 || list.Windows[0].Cluster != name {
			t.Errorf("list of %s: %+v", name, list)
		}
	}
	for _, gone := range []string{"a", "cluster1"} { // the other clusters' objects are no substitute
		err := os.RemoveAll(filepath.Join(first.repo, gone))
		if err != nil {
			t.Fatal(err)
		}
		jobs[gone].wantRefused(t, 3, "not in the repository")
	}
	for _, left := range []string{"a0", "cluster10"} {
		jobs[left].wantRestored(t, live(t, clients[left], 0))
	}
}

// files returns the contents of every file below dir. A running agent may remove files meanwhile: those are left out.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		all[path] = fmt.Sprintf("%v %v %s", info.Mode(), info.ModTime(), data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestLogOfADamagedMember checks that a damaged log is neither read past the damage nor modified.
func TestLogOfADamagedMember(t *testing.T) {
	withServers(t)
	source := servers.Start(t, servers.Options{})
	for n := range 200 {
		put(t, source.Client(t), fmt.Sprint("key/", n), strings.Repeat("x", 500))
	}
	dir := filepath.Join(t.TempDir(), "copy")
	err := os.CopyFS(dir, os.DirFS(source.Members[0].DataDir))
	if err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("%q, %v", logs, err)
	}
	data, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		data[50_000+i] ^= 0xff
	}
	err = os.WriteFile(logs[0], data, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	j := newJob(t)
	a := agent.Start(t, j.env, dir, reach(source)...)
	code := a.Wait(t)
	if code != 3 || !strings.Contains(a.Log(), filepath.Base(logs[0])) {
		t.Errorf("exit code %d, want 3 and the file's name:\n%s", code, a.Log())
	}
	if !maps.Equal(before, files(t, dir)) {
		t.Error("the data dir has changed")
	}
}

// TestLogOfNothing checks an empty repository, which has nothing to restore, and an empty data dir, which has no log.
func TestLogOfNothing(t *testing.T) {
	withServers(t)
	source := servers.Start(t, servers.Options{})
	j := newJob(t)
	err := os.Mkdir(j.repo, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"--best"}, {"--to-revision", "5"}, {"--to", "1s ago"}, {"--to-revision", "5", "--best"}} {
		j.wantRefused(t, 3, "not in the repository", args...)
	}
	command.Run(t, j.env, "archive", "verify").Ended(t, 3)
	missing := filepath.Join(t.TempDir(), "missing")
	code := agent.Start(t, j.env, missing, reach(source)...).Wait(t)
	if code != 2 {
		t.Errorf("without a data dir: exit code %d, want 2", code)
	}
	_, err = os.Stat(missing)
	if err == nil {
		t.Error("the missing data dir is there")
	}
}

// TestLogOfAServerOfAnotherAuthority checks that dr refuses a server with a certificate of another authority: TLS is
// verified by default.
func TestLogOfAServerOfAnotherAuthority(t *testing.T) {
	withServers(t)
	source := servers.Start(t, servers.Options{TLS: true})
	put(t, source.Client(t), "key", "value")
	other := servers.NewCertificates(t)
	own := source.Certificates
	for name, args := range map[string][]string{
		"of another authority":      {"--cacert", other.CA, "--cert", own.Cert, "--key", own.Key},
		"of none that is known":     {"--cert", own.Cert, "--key", own.Key},
		"with another client's own": {"--cacert", own.CA, "--cert", other.Cert, "--key", other.Key},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dir := range []string{source.Members[0].DataDir, ""} {
				j := newJob(t)
				a := agent.Start(t, j.env, dir, append([]string{"--endpoints", source.Endpoints()[0]}, args...)...)
				a.Until(t, "it says why it waits", func(s document.Agent) bool {
					return s.State == document.AgentWaiting && strings.Contains(s.Problem, "certificate")
				})
				a.Stop(t)
				stored := files(t, filepath.Dir(j.repo))
				if len(stored) != 1 { // the key
					t.Errorf("something was stored: %d files", len(stored))
				}
			}
		})
	}
}

// TestLogWithPasswordsIsSealed checks that the log of etcd 3.4, which contains plain passwords, is never stored
// unencrypted.
func TestLogWithPasswordsIsSealed(t *testing.T) {
	withServers(t)
	source := servers.Start(t, servers.Options{Version: "3.4", Auth: true, TLS: true})
	j := newJob(t)
	j.env = []string{"DR_REPO=file://" + j.repo, "DR_CLUSTER=prod"}
	a := j.archiving(t, source, 0)
	code := a.Wait(t)
	if code != 4 || !strings.Contains(a.Log(), "--recipient") || !strings.Contains(a.Log(), "passwords") {
		t.Errorf("exit code %d, want 4, and why:\n%s", code, a.Log())
	}
	for name, content := range files(t, filepath.Dir(j.repo)) {
		if strings.Contains(content, source.RootPassword) || strings.HasSuffix(name, ".seg") {
			t.Errorf("%s was stored", name)
		}
	}
}
