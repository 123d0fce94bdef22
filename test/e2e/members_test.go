package e2e

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// TestAnAgentNoticesDivergedMembers checks that an agent notices a member with different data: its status and health,
// the log, the list, the status from the repository alone, and a plan report it, and it continues to archive.
func TestAnAgentNoticesDivergedMembers(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{Members: 3})
	client := c.Client(t, servers.At(c.Members[0]))
	put(t, client, "a", "b")
	newest(t, c.Client(t, servers.At(c.Members[2]))) // it has applied that too
	c.Stop(t, 2)
	err := database.ChangeLast(filepath.Join(c.Members[2].DataDir, "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	c.Restart(t, 2)

	j := newJob(t)
	a := j.archiving(t, c, 0)
	s := a.Until(t, "the difference is noticed", func(s document.Agent) bool { return s.Diverged != "" })
	if !strings.Contains(s.Diverged, "HashKV at revision") {
		t.Errorf("noticed: %s", s.Diverged)
	}
	j.firstWindow(t, client, a)
	code, _ := a.Get(t, "/healthz")
	if code != http.StatusServiceUnavailable {
		t.Errorf("/healthz answers %d", code)
	}
	w := j.untilWindows(t, 1).Windows[0]
	if w.Diverged != s.Diverged {
		t.Errorf("the window: %+v", w)
	}
	for what, args := range map[string][]string{
		"list":   {"list"},
		"status": {"status"},
		"plan":   {"restore", "--dry-run", "--old-is-dead"},
	} {
		out := command.Run(t, j.env, args...)
		words := strings.Join(strings.Fields(out.Stdout), " ")
		if !strings.Contains(words, s.Diverged) { // lines are wrapped
			t.Errorf("dr %s does not report it:\n%s%s", what, out.Stdout, out.Stderr)
		}
	}
}
