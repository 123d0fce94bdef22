package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// waitForDatabase waits until the member's database has on disk everything that it has applied: etcd writes it every
// tenth of a second, and a loaded machine later.
func waitForDatabase() { time.Sleep(time.Second) }

// spoil changes a file at places that are not empty.
func spoil(t *testing.T, path string, from, to float64) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end := len(data)
	for end > 0 && data[end-1] == 0 {
		end--
	}
	for at := int(float64(end) * from); at < int(float64(end)*to); at += 64 {
		data[at] ^= 0x5a
	}
	err = os.WriteFile(path, data, 0o600)
	if err != nil {
		t.Fatal(err)
	}
}

func logOf(t *testing.T, m *servers.Member) string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(m.DataDir, "member", "wal", "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no log in %s: %v", m.DataDir, err)
	}
	return logs[len(logs)-1]
}

func TestSalvageADamagedDatabase(t *testing.T) {
	withServers(t)
	for _, version := range servers.Some(t) {
		t.Run(version, func(t *testing.T) {
			c := servers.Start(t, servers.Options{Version: version, Members: 3})
			j := newJob(t)
			servers.Fill(t, c.Client(t), 5, servers.FillOptions{})
			j.backUp(t, c)
			l := startLoad(t, c.Client(t))
			l.until(t, 300)
			killAll(t, c, 0, 1, 2)
			l.end()
			// Its damaged pages are found only when all are read: then another disk's database is the base.
			spoil(t, filepath.Join(c.Members[0].DataDir, "member", "snap", "db"), 0.3, 0.9)
			client, r := salvage(t, version, nil, dirs(c, 0, 1))
			l.holds(t, "another disk's database", client)
			if !slices.Contains(r.Salvaged.Disks, c.Members[1].DataDir) {
				t.Errorf("taken from %q", r.Salvaged.Disks)
			}
			// A single disk with nothing but its log cannot be restored alone, but can with a backup.
			spoil(t, filepath.Join(c.Members[0].DataDir, "member", "snap", "db"), 0, 0.3)
			command.Run(t, nil, "restore", "--from-data-dir", dirs(c, 0), "--output-dir", filepath.Join(t.TempDir(), "x")).
				Ended(t, 3, "--repo")
			client, _ = salvage(t, version, j.env, dirs(c, 0, 2), "--old-is-dead")
			l.holds(t, "a disk's database, a damaged one beside it", client)
			spoil(t, filepath.Join(c.Members[2].DataDir, "member", "snap", "db"), 0, 0.9)
			client, r = salvage(t, version, j.env, dirs(c, 0, 2), "--old-is-dead")
			l.holds(t, "a backup and the logs", client)
			if r.Salvaged.Certain < 200 {
				t.Errorf("result %+v", r.Salvaged)
			}
		})
	}
}

func TestSalvageADamagedLog(t *testing.T) {
	withServers(t)
	for _, version := range servers.Some(t) {
		t.Run(version, func(t *testing.T) {
			c := servers.Start(t, servers.Options{Version: version})
			client := c.Client(t)
			servers.Fill(t, client, 5, servers.FillOptions{})
			waitForDatabase()
			revision := newest(t, client)
			c.Kill(t, 0)
			spoil(t, logOf(t, c.Members[0]), 0.4, 0.5)
			booted, r := salvage(t, version, nil, dirs(c, 0))
			if r.Revision != revision || newest(t, booted) != revision || r.Replayed != nil {
				t.Errorf("it came back at revision %d, want the database's %d", r.Revision, revision)
			}
			p := salvagePlan(t, nil, dirs(c, 0))
			d := p.Salvage.Disks[0]
			if len(d.Findings) != 1 || !strings.Contains(d.Findings[0], "offset") || p.Salvage.Majority {
				t.Errorf("the plan does not say what is wrong: %+v", p.Salvage)
			}
		})
	}
}

func newest(t *testing.T, client *clientv3.Client) int64 {
	t.Helper()
	r, err := client.Get(t.Context(), "any")
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

// TestSalvageAfterTheArchive ends the archive, lets the cluster continue, and kills it: the result is the archive's
// proven state and the entries after it from the disks.
func TestSalvageAfterTheArchive(t *testing.T) {
	withServers(t)
	for _, version := range servers.Some(t) {
		t.Run(version, func(t *testing.T) {
			c := servers.Start(t, servers.Options{Version: version, Members: 3})
			j := newJob(t)
			a := j.archiving(t, c, 1)
			j.firstWindow(t, c.Client(t), a)
			servers.Fill(t, c.Client(t), 6, servers.FillOptions{})
			agent.CatchUp(t, a)
			archived := newest(t, c.Client(t))
			a.Stop(t)
			l := startLoad(t, c.Client(t))
			l.until(t, 300)
			killAll(t, c, 0, 1, 2)
			l.end()

			client, r := salvage(t, version, j.env, dirs(c, 0, 2))
			l.holds(t, "archive and disks", client)
			if r.Replayed == nil || r.Replayed.Lineage == "" || r.Salvaged.Certain+r.Salvaged.Probable < 300 {
				t.Errorf("result %+v, %+v", r.Replayed, r.Salvaged)
			}
			revision := archived + 100
			_, r = salvage(t, version, j.env, dirs(c, 0, 2), "--to-revision", fmt.Sprint(revision))
			if r.Revision != revision {
				t.Errorf("it ends at revision %d, want %d behind the archive's end", r.Revision, revision)
			}
			// The disks' databases are not needed.
			for _, i := range []int{0, 2} {
				spoil(t, filepath.Join(c.Members[i].DataDir, "member", "snap", "db"), 0, 0.9)
			}
			client, _ = salvage(t, version, j.env, dirs(c, 0, 2))
			l.holds(t, "archive and logs", client)
		})
	}
}
