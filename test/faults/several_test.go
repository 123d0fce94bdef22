package faults

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

func small(t *testing.T) (*servers.Cluster, keyPair) {
	t.Helper()
	server := servers.Start(t, servers.Options{})
	fillRandom(t, server.Client(t), 1, 4<<20, 1000)
	return server, newKey(t, filepath.Join(t.TempDir(), "key.txt"))
}

func TestBackupIntoSeveral(t *testing.T) {
	if testing.Short() {
		return
	}
	s := objectstores.S3(t)
	objectstores.Setenv(t, s.Env())
	server, key := small(t)
	first := repo(filepath.Join(t.TempDir(), "first"))
	second, absent := s.URL(s.Bucket(t), "second"), s.URL("no-such-bucket", "")
	var d document.BackupResult
	run(t, backupArgs(first, key, server.Endpoints(), "--repo", second)...).Succeeded(t, &d)
	want := digests(t, bucket(t, "file://"+string(first)))
	got := digests(t, bucket(t, second))
	if len(want) != 2 || len(got) != 2 || len(d.Stores) != 2 || !d.Stores[0].Stored || !d.Stores[1].Stored {
		t.Errorf("stored %v and %v, said to be in %+v", want, got, d.Stores)
	}
	for key, digest := range want {
		if got[key] != digest {
			t.Errorf("%s is not the same in both", key)
		}
	}

	run(t, backupArgs(first, key, server.Endpoints(), "--repo", absent)...).Failed(t, 1, "no-such-bucket")
	now := digests(t, bucket(t, "file://"+string(first)))
	if len(now) != 2 {
		t.Errorf("a backup that one of two repositories refused has left %v", now)
	}
	o := run(t, backupArgs(first, key, server.Endpoints(), "--repo", absent, "--require", "any")...)
	o.Decode(t, &d)
	if o.Code != 0 || len(d.Stores) != 2 || !d.Stores[0].Stored || d.Stores[1].Stored ||
		!strings.Contains(d.Stores[1].Message, "does not exist") {
		t.Errorf("%+v: %s", d.Stores, o)
	}
	list := first.list(t)
	if len(list.Backups) != 2 {
		t.Errorf("%d backups are listed", len(list.Backups))
	}
	for _, bad := range [][]string{{"--repo", "file://" + string(first)}, {"--require", "most"}} {
		run(t, backupArgs(first, key, server.Endpoints(), bad...)...).Ended(t, 2)
	}
}

// TestTwoBackupsAtOnceIntoS3 starts two at once: both succeed, or one is refused; each listed backup is complete and
// was reported by its run.
func TestTwoBackupsAtOnceIntoS3(t *testing.T) {
	if testing.Short() {
		return
	}
	s := objectstores.S3(t)
	objectstores.Setenv(t, s.Env())
	server, key := small(t)
	url := s.URL(s.Bucket(t), "repo")
	args := []string{
		"backup", "--repo", url, "--cluster", clusterName, "--recipient", key.recipient, "--endpoints", server.Endpoints()[0],
		"--dial-timeout", "1m", // for a busy host
	}
	taken := map[catalog.ID]string{} // with the digest of its stored bytes
	for range 4 {
		processes := []*command.Process{start(t, args...), start(t, args...)}
		stored := 0
		for _, p := range processes {
			o := p.Wait(t)
			if o.Code != 0 {
				o.Failed(t, 1, "exist")
				continue
			}
			var d document.BackupResult
			o.Succeeded(t, &d)
			if taken[d.ID] != "" {
				t.Errorf("two have taken %s", d.ID)
			}
			taken[d.ID] = d.Stored.SHA256
			stored++
		}
		if stored == 0 {
			t.Error("neither was stored")
		}
	}
	t.Logf("%d of 8 were stored", len(taken))
	wantTaken(t, url, key, taken)
}

// wantTaken fails unless exactly these are listed and complete.
func wantTaken(t *testing.T, url string, key keyPair, taken map[catalog.ID]string) {
	t.Helper()
	var list document.List
	flags := []string{"--repo", url, "--cluster", clusterName}
	run(t, append([]string{"list"}, flags...)...).Succeeded(t, &list)
	if len(list.Backups) != len(taken) || len(list.Damaged) > 0 {
		t.Errorf("%d backups were taken, %d are listed, %d damaged", len(taken), len(list.Backups), len(list.Damaged))
	}
	stored := digests(t, bucket(t, url))
	for _, l := range list.Backups {
		if taken[l.ID] != l.Stored.SHA256 || stored[backupsOf(clusterName)+string(l.ID)+"/"+l.Stored.Name] != l.Stored.SHA256 {
			t.Errorf("%s was taken as %s, its manifest says %s", l.ID, taken[l.ID], l.Stored.SHA256)
		}
	}
	if len(stored) != 2*len(taken) {
		t.Errorf("%d backups and %d objects", len(taken), len(stored))
	}
	run(t, slices.Concat([]string{"verify", "--all", "--level", "opened", "--identity", key.file}, flags)...).Succeeded(t, nil)
}
