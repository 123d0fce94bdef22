package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// serving is one running dr serve.
type serving struct {
	cmd   *exec.Cmd
	url   string
	log   string
	ended chan struct{}
}

func serve(t *testing.T, config string, env ...string) *serving {
	t.Helper()
	url := servers.FreeURLs(t, 1)[0]
	s := &serving{url: url, log: filepath.Join(t.TempDir(), "serve.log"), ended: make(chan struct{})}
	s.cmd = command.Command(t, env, "serve", "--config", config, "--listen", strings.TrimPrefix(url, "http://"))
	out, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	s.cmd.Stdout, s.cmd.Stderr = out, out
	err = s.cmd.Start()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait() // cmd.ProcessState has the result
		close(s.ended)
	}()
	t.Cleanup(func() {
		s.end(syscall.SIGKILL)
		said, err := os.ReadFile(s.log)
		if t.Failed() {
			t.Logf("what dr serve at %s said: %v\n%s", s.url, err, said)
		}
	})
	return s
}

// end sends a signal and waits.
func (s *serving) end(signal os.Signal) int {
	_ = s.cmd.Process.Signal(signal) // it may have ended
	<-s.ended
	return s.cmd.ProcessState.ExitCode()
}

func (s *serving) status() (d document.ServeStatus, err error) {
	client := http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	response, err := client.Get(s.url + "/status")
	if err != nil {
		return d, err
	}
	defer response.Body.Close()
	return d, json.NewDecoder(response.Body).Decode(&d)
}

// until waits until wanted accepts the service's status.
func (s *serving) until(t *testing.T, what string, wanted func(document.ServeStatus) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		status, err := s.status()
		if err == nil && wanted(status) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited for: %s; it said last %+v, %v", what, status, err)
		}
	}
}

// slotsOf returns the labels of a cluster's backups with the times when they were due, oldest first.
func slotsOf(t *testing.T, repo, cluster string) (slots []string) {
	t.Helper()
	out := command.Run(t, nil, "list", "--repo", repo, "--cluster", cluster, "-o", "json")
	var list document.List
	if out.Code == 0 {
		err := json.Unmarshal([]byte(out.Stdout), &list)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range slices.Backward(list.Backups) {
		slots = append(slots, b.Labels["schedule"])
	}
	return slots
}

// more waits until both clusters have n more backups, and no slot twice.
func more(t *testing.T, repo string, n int) {
	t.Helper()
	for _, cluster := range []string{"prod", "test"} {
		begin := len(slotsOf(t, repo, cluster))
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
			slots := slotsOf(t, repo, cluster)
			unique := slices.Compact(slices.Sorted(slices.Values(slots)))
			if len(unique) < len(slots) {
				t.Fatalf("%s has a slot twice: %q", cluster, slots)
			}
			if len(slots) >= begin+n {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s has the slots %q, %d more are wanted", cluster, slots, n)
			}
		}
	}
}

// TestServe runs two services with one configuration for two clusters. One is killed, again and again, and restarted;
// invalid files are refused. No slot is delayed for long, and none is used twice.
func TestServe(t *testing.T) {
	withServers(t)
	prod, test := servers.Start(t, servers.Options{Members: 3}), servers.Start(t, servers.Options{})
	dir := t.TempDir()
	repo, path := "file://"+filepath.Join(dir, "repo"), filepath.Join(dir, "dr.yaml")
	write := func(text string) {
		err := os.WriteFile(path+".new", []byte(text), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		err = os.Rename(path+".new", path)
		if err != nil {
			t.Fatal(err)
		}
	}
	good := fmt.Sprintf(`
lease: 2s
repositories:
  main: {url: %s}
defaults:
  repositories: [main]
  schedule: {cron: "@every 2s"}
clusters:
  prod: {etcd: {endpoints: [%s]}}
  test: {etcd: {endpoints: [%s]}}
`, repo, strings.Join(prod.Endpoints(), ", "), strings.Join(test.Endpoints(), ", "))
	write(good)
	said := command.Must(t, nil, "config", "check", "--config", path)
	if !strings.Contains(said, "prod: next full at ") {
		t.Errorf("dr config check said\n%s", said)
	}

	a := serve(t, path)
	more(t, repo, 2)
	b := serve(t, path)
	for range 3 {
		more(t, repo, 1)
		a.end(syscall.SIGKILL)
		more(t, repo, 2)
		a = serve(t, path)
	}

	write(strings.Replace(good, "lease:", "leese:", 1))
	b.until(t, "the bad file is refused", func(s document.ServeStatus) bool {
		return strings.Contains(s.Config.Refused, `dr.yaml:2: unknown key "leese"`) && len(s.Clusters) == 2
	})
	more(t, repo, 2)
	write(strings.Replace(good, "  test: {", "  stage: {retention: {last: 2}, ", 1))
	b.until(t, "the good file is in force, and the retention too", func(s document.ServeStatus) bool {
		return s.Config.Refused == "" && len(s.Clusters) == 2 && s.Clusters[1].Cluster == "stage" && s.Clusters[1].Last != nil &&
			slotsOf(t, repo, "stage")[0] != "" && len(slotsOf(t, repo, "stage")) <= 3 && s.Clusters[1].Unpruned == "" && s.Clusters[1].Counted(document.JobBackup, document.Succeeded) > 3
	})
	before, err := b.status()
	if err != nil {
		t.Fatal(err)
	}
	err = b.cmd.Process.Signal(syscall.SIGHUP)
	if err != nil {
		t.Fatal(err)
	}
	b.until(t, "it is read again", func(s document.ServeStatus) bool { return s.Config.Since.After(before.Config.Since) })

	code := b.end(syscall.SIGTERM)
	if code != 0 {
		t.Errorf("stopped, it ended with %d", code)
	}
	a.end(syscall.SIGTERM)
	said = command.Must(t, nil, "status", "--config", path)
	if !strings.Contains(said, "stage") || strings.Contains(said, "CRITICAL") {
		t.Errorf("dr status said\n%s", said)
	}
}
