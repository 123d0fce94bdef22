package faults

import (
	"path/filepath"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/servers"
)

func TestMemberDiesInMidSnapshot(t *testing.T) {
	if testing.Short() {
		return
	}
	l := newLarge(t)
	r := repo(filepath.Join(t.TempDir(), "repo"))
	g := newGate(t, l.server.Members[0].ClientURL, largeSize/2)
	p := start(t, backupArgs(r, l.key, []string{g.url})...)
	<-g.reached
	l.server.Kill(t, 0)
	g.open()
	p.Wait(t).Failed(t, 1, "snapshot", "bytes")
	list := r.list(t)
	if len(list.Backups)+len(list.Damaged) > 0 {
		t.Errorf("dr list shows %+v", list)
	}
	nothingIn(t, string(r))

	l.server.Restart(t)
	backUp(t, r, l.key, l.server.Endpoints())
}

// TestMemberHangsInMidSnapshot checks that dr gives up on a member that hangs, and on a store or network that is too
// slow for the database.
func TestMemberHangsInMidSnapshot(t *testing.T) {
	if testing.Short() {
		return
	}
	l := newLarge(t)
	r := repo(filepath.Join(t.TempDir(), "repo"))
	g := newGate(t, l.server.Members[0].ClientURL, largeSize/2)
	run(t, backupArgs(r, l.key, []string{g.url}, "--max-stream", "2s")...).Failed(t, 1, "--max-stream")
	nothingIn(t, string(r))
}

func TestLeaderMovesInMidSnapshot(t *testing.T) {
	if testing.Short() {
		return
	}
	c := servers.Start(t, servers.Options{Members: 3})
	client := c.Client(t)
	fillRandom(t, client, 1, largeSize, 1000)
	leader := c.Leader(t)
	r := repo(filepath.Join(t.TempDir(), "repo"))
	key := newKey(t, filepath.Join(t.TempDir(), "key.txt"))
	g := newGate(t, c.Members[leader].ClientURL, largeSize/2)
	p := start(t, backupArgs(r, key, []string{g.url})...)
	<-g.reached
	c.MoveLeader(t, (leader+1)%3)
	fillRandom(t, client, 2, 1<<20, 1000) // under the new leader; the snapshot is older
	g.open()
	p.Wait(t).Succeeded(t, nil)
	run(t, r.flags("verify", "--identity", key.file)...).Succeeded(t, nil)
}
