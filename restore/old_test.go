package restore_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// silent takes connections and never says a word, as a stopped process does.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// Two clusters that believe they are the same one are worse than none.
func TestOldClusterIsAsked(t *testing.T) {
	t.Parallel()
	peer := servers.FreeURLs(t, 1)[0]
	old := start(t, "old", t.TempDir(), "old="+peer, peer)
	alive := "http://" + old.Clients[0].Addr().String()
	id := fmt.Sprintf("%x", uint64(old.Server.Cluster().ID()))
	stopped := silent(t)
	for name, test := range map[string]struct {
		url, id string
		dead    bool
		refused bool
		note    string
	}{
		"it answers":           {url: alive, id: id, refused: true},
		"it answers, allowed":  {url: alive, id: id, dead: true},
		"another cluster":      {url: alive, id: "cafe", note: "another cluster, " + id + ", answers at " + alive},
		"a server that hangs":  {url: "http://" + stopped, id: id, refused: true},
		"and one with TLS":     {url: "https://" + stopped, id: id, refused: true},
		"hangs, allowed":       {url: "https://" + stopped, id: id, dead: true},
		"nobody":               {url: deadURL, id: id},
		"a URL of no use":      {url: "unix://x", id: id},
		"a URL that is broken": {url: "http://127.0.0.1:1%zz", id: id},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := store(t, plainDatabase(t), func(m *repository.Manifest) {
				m.ClusterID = test.id
				m.Members[1].ClientURLs = []string{deadURL, test.url}
			})
			p := s.plan(t, restore.Layout{OldIsDead: test.dead, Into: one(t, "m1")})
			if test.refused {
				_, err := restore.Run(t.Context(), p, s.cluster, s.keys, nil)
				if !errors.Is(err, restore.ErrRefused) || !strings.Contains(err.Error(), test.url) ||
					!strings.Contains(err.Error(), "--old-is-dead") {
					t.Errorf("error %v", err)
				}
				wantNothing(t, p.Into)
				return
			}
			_, events := run(t, s, p)
			if said := messages(events); said != test.note {
				t.Errorf("said %q, want %q", said, test.note)
			}
		})
	}
}
