package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/test/command"
)

// TestServeReportsConditions has a cluster without an answering member: the service reports it in its status at once,
// and to a webhook after a minute; its heartbeat continues until then.
func TestServeReportsConditions(t *testing.T) {
	withServers(t)
	told, beats := make(chan condition.Change, 100), make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			beats <- r.URL.Path
			return
		}
		var c condition.Change
		err := json.NewDecoder(r.Body).Decode(&c)
		if err != nil || r.Header.Get("Authorization") != "Bearer t0ken" {
			t.Errorf("%s was told with %q: %v", r.URL, r.Header.Get("Authorization"), err)
		}
		told <- c
	}))
	defer receiver.Close()
	dir := t.TempDir()
	text := fmt.Sprintf(`
webhook: {urlFile: %[1]s/hook, headerFiles: {Authorization: %[1]s/token}}
heartbeat: {url: "%[2]s/beat", every: 10s, fail: /fail}
repositories:
  main: {url: "file://%[1]s/repo"}
clusters:
  prod:
    etcd: {endpoints: [http://127.0.0.1:1], dialTimeout: 1s}
    repositories: [main]
    schedule: {cron: "@daily"}
    conditions: {accept: [NotLocked]}
`, dir, receiver.URL)
	for name, text := range map[string]string{"hook": receiver.URL + "/hook\n", "token": "Bearer t0ken\n", "dr.yaml": text} {
		err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	s := command.Serve(t, nil, filepath.Join(dir, "dr.yaml"))
	s.Until(t, "the conditions", func(d document.ServeStatus) bool {
		var names []condition.Name
		for _, c := range d.Clusters {
			for _, one := range c.Conditions {
				names = append(names, one.Name)
			}
		}
		return slices.Equal(slices.DeleteFunc(names, func(n condition.Name) bool { return n == condition.BackupFailing }), []condition.Name{
			condition.NoBackup, condition.MembersAway, condition.NotEncrypted,
		})
	})
	path := <-beats
	if path != "/beat" {
		t.Errorf("first the heart's beat is %s", path)
	}
	c := <-told
	if c.State != condition.Begins || c.Name != condition.NoBackup || c.Cluster != "prod" || c.Severity != condition.Critical {
		t.Errorf("told first: %+v", c)
	}
	for deadline := time.After(patience); ; {
		select {
		case path := <-beats:
			if path != "/beat/fail" {
				continue
			}
		case <-deadline:
			t.Error("the heart beats as if all were well")
		}
		break
	}
	s.Stop(t)
	log := s.Log()
	if !strings.Contains(log, "NoBackup (critical): ") || strings.Contains(log, "t0ken") {
		t.Errorf("the log:\n%s", log)
	}
}
