package faults

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// counted writes the key that is named after its revision, so that a key space shows whether it is complete.
func counted(t *testing.T, client *clientv3.Client, n int) {
	t.Helper()
	for range n {
		now, err := client.Get(t.Context(), "any", clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Put(t.Context(), fmt.Sprintf("key/%06d", now.Header.Revision+1), strings.Repeat("x", 500))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// whole fails the test unless the database of a restored data dir has every key up to its revision, and no other.
func whole(t *testing.T, dir string, revision int64) {
	t.Helper()
	image, _, err := database.Newest(filepath.Join(dir, "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	if image.Revision != revision || int64(len(image.KVs)) != revision-1 {
		t.Fatalf("it holds %d keys at revision %d, the result says %d", len(image.KVs), image.Revision, revision)
	}
	for i, kv := range image.KVs {
		want := fmt.Sprintf("key/%06d", i+2)
		if string(kv.Key) != want || kv.ModRevision != int64(i+2) {
			t.Fatalf("key %d is %s of revision %d, want %s", i, kv.Key, kv.ModRevision, want)
		}
	}
}

// killedMember returns the data dir of a killed member with so many revisions.
func killedMember(t *testing.T, version string, writes int) string {
	t.Helper()
	c := servers.Start(t, servers.Options{Version: version, ExtraArgs: []string{
		"--snapshot-count", "150", "--backend-batch-interval", "1h", "--backend-batch-limit", "1000000", // the database has no more than the snapshots
	}})
	counted(t, c.Client(t), writes)
	c.Kill(t, 0)
	return c.Members[0].DataDir
}

// asRead returns a digest of every file below a directory, byte by byte: a database must not be opened to be compared.
func asRead(t *testing.T, dir string) string {
	t.Helper()
	digest := sha256.New()
	for _, path := range files(t, dir) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(digest, "%s %d %x\n", path, len(data), sha256.Sum256(data))
	}
	return hex.EncodeToString(digest.Sum(nil))
}

func salvageArgs(into string, from ...string) []string {
	return []string{"restore", "--repo", "", "--name", "m1", "--data-dir", into, "--initial-cluster", "m1=http://127.0.0.1:2380",
		"--from-data-dir", strings.Join(from, ",")}
}

// copyOf copies a data dir, and returns the paths of its files that are not empty.
func copyOf(t *testing.T, dir string) (copied string, files []string) {
	t.Helper()
	copied = filepath.Join(t.TempDir(), "copy")
	err := os.CopyFS(copied, os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(copied, "member", "wal", "*.wal"))
	if err != nil {
		t.Fatal(err)
	}
	return copied, append(logs, filepath.Join(copied, "member", "snap", "db"))
}

// harm changes a file as a failing disk does. A database has no checksums of its own: a change within a value is not
// detectable, so harm changes whole pages of it.
func harm(t *testing.T, path string, random *rand.Rand) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end := len(data)
	for end > 1 && data[end-1] == 0 {
		end--
	}
	at := random.IntN(end)
	var what string
	way := random.IntN(4)
	if filepath.Base(path) == "db" {
		way = 2 + random.IntN(2)
	}
	switch way {
	case 0:
		what = "one byte"
		data[at] ^= byte(1 + random.IntN(255))
	case 1:
		what = "a sector of zeros"
		at &^= 511
		clear(data[at:min(at+512, len(data))])
	case 2:
		what = "a page of noise"
		at &^= 4095
		for i := at; i < min(at+4096, len(data)); i++ {
			data[i] = byte(random.Uint32())
		}
	case 3:
		what = "cut off"
		data = data[:at]
	}
	err = os.WriteFile(path, data, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s: %s at %d of %d", filepath.Base(path), what, at, end)
}

// TestSalvageFromAnyDisk checks that salvage from any damaged disk restores a state that the cluster had, or fails with
// the reason in one line.
func TestSalvageFromAnyDisk(t *testing.T) {
	if testing.Short() {
		return
	}
	random := rand.New(rand.NewPCG(seed(t), 31))
	trials := 10
	if soak.On() {
		trials = 200
	}
	t.Logf("seed %d", seed(t))
	came := 0
	for _, version := range []string{"3.4", "3.7"} {
		dir := killedMember(t, version, 400)
		for n := range trials {
			t.Run(fmt.Sprintf("%s %d", version, n), func(t *testing.T) {
				copied, files := copyOf(t, dir)
				for range 1 + random.IntN(2) {
					t.Log(harm(t, files[random.IntN(len(files))], random))
				}
				before := asRead(t, copied)
				into := filepath.Join(t.TempDir(), "restored")
				out := run(t, salvageArgs(into, copied)...)
				after := asRead(t, copied)
				if before != after {
					t.Error("the disk was changed")
				}
				if out.Code != 0 {
					out.Failed(t, 3)
					nothingIn(t, filepath.Dir(into))
					return
				}
				var r restore.Result
				out.Succeeded(t, &r)
				whole(t, into, r.Revision)
				came++
			})
		}
	}
	if came == 0 || came == 2*trials {
		t.Errorf("of %d disks %d came back: the harm is too much or too little", 2*trials, came)
	}
}

// TestSalvageKilled checks that a salvage killed at any stage leaves the disk unchanged and publishes everything or
// nothing, and that it can be repeated.
func TestSalvageKilled(t *testing.T) {
	if testing.Short() {
		return
	}
	dir := killedMember(t, "3.7", 400)
	before := asRead(t, dir)
	into := filepath.Join(t.TempDir(), "restored")
	for _, stage := range []string{"survey", "fetch", "check", "prove", "replay", "build"} {
		p := start(t, salvageArgs(into, dir)...)
		if !p.Until(1, stage) {
			t.Fatalf("%s did not come: %s", stage, p.Wait(t))
		}
		p.Signal(t, syscall.SIGKILL)
		out := p.Wait(t)
		noProcess(t)
		_, err := os.Stat(into)
		if err != nil {
			continue
		}
		t.Logf("at %s it had published before it was killed, with exit code %d", stage, out.Code)
		whole(t, into, 401)
		err = os.RemoveAll(into)
		if err != nil {
			t.Fatal(err)
		}
	}
	var r restore.Result
	run(t, salvageArgs(into, dir)...).Succeeded(t, &r)
	whole(t, into, r.Revision)
	if r.Revision != 401 {
		t.Errorf("it came back at revision %d, want 401", r.Revision)
	}
	after := asRead(t, dir)
	if before != after {
		t.Error("the disk was changed")
	}
}

// TestSalvageACutOffLeader salvages a leader that was cut off and has unacknowledged writes on its disk, while the
// others continued without it. Together with one of them its tail does not count, and alone it is used only on request.
func TestSalvageACutOffLeader(t *testing.T) {
	if testing.Short() {
		return
	}
	for _, version := range servers.Some(t) {
		t.Run(version, func(t *testing.T) {
			c := servers.Start(t, servers.Options{
				Version: version, Members: 3, ExtraArgs: []string{"--election-timeout", "5000"}, // for so long a leader without followers stays one
			})
			put(t, c.Client(t), "on all")
			committed(t, c)
			a := c.Leader(t)
			b, d := (a+1)%3, (a+2)%3
			c.Kill(t, b)
			c.Kill(t, d)
			c.PutUnacknowledged(t, a, "stale", 20)
			c.Kill(t, a)
			c.Restart(t, b, d)
			for n := range 5 {
				put(t, c.Client(t, servers.At(c.Members[b])), fmt.Sprintf("after/%d", n))
			}
			c.Kill(t, b)
			c.Kill(t, d)
			for name, s := range map[string]struct {
				from         []int
				tail         string
				stale, after int
			}{
				"all three":                 {[]int{a, b, d}, "auto", 0, 5},
				"it and another":            {[]int{a, b}, "auto", 0, 5},
				"it and another, all":       {[]int{a, d}, "all", 0, 5},
				"it alone":                  {[]int{a}, "auto", 0, 0},
				"it alone, and what it has": {[]int{a}, "all", 20, 0},
			} {
				var from []string
				for _, i := range s.from {
					from = append(from, c.Members[i].DataDir)
				}
				into := filepath.Join(t.TempDir(), "restored")
				run(t, append(salvageArgs(into, from...), "--salvage-tail", s.tail)...).Succeeded(t, nil)
				image, _, err := database.Newest(filepath.Join(into, "member", "snap", "db"))
				if err != nil {
					t.Fatal(err)
				}
				stale, after := 0, 0
				for _, kv := range image.KVs {
					stale += strings.Count(string(kv.Key), "stale/")
					after += strings.Count(string(kv.Key), "after/")
				}
				if stale != s.stale || after != s.after {
					t.Errorf("%s: %d that were never acknowledged, want %d; %d later ones, want %d", name, stale, s.stale, after, s.after)
				}
			}
		})
	}
}

// TestSalvageAFollowerThatGotASnapshot salvages a follower that was down for so long that it received a snapshot: its
// log has a hole, and its database is after it.
func TestSalvageAFollowerThatGotASnapshot(t *testing.T) {
	if testing.Short() {
		return
	}
	c := servers.Start(t, servers.Options{Members: 3, ExtraArgs: []string{"--snapshot-count", "100", "--snapshot-catchup-entries", "20"}})
	a := c.Leader(t)
	late := (a + 1) % 3
	counted(t, c.Client(t, servers.At(c.Members[a])), 50)
	c.Kill(t, late)
	counted(t, c.Client(t, servers.At(c.Members[a])), 400)
	c.Restart(t, late)
	counted(t, c.Client(t, servers.At(c.Members[late])), 30)
	for _, i := range []int{a, (a + 2) % 3, late} {
		c.Kill(t, i)
	}
	var p plan.Plan
	run(t, append(salvageArgs(filepath.Join(t.TempDir(), "x"), c.Members[late].DataDir), "--dry-run")...).Succeeded(t, &p)
	d := p.Salvage.Disks[0]
	if d.First < 400 || d.Database < d.First-1 || len(d.Findings) != 0 {
		t.Errorf("it was to get a snapshot: %+v", d)
	}
	for name, from := range map[string][]string{
		"alone": {c.Members[late].DataDir}, "with the leader": {c.Members[a].DataDir, c.Members[late].DataDir},
	} {
		into := filepath.Join(t.TempDir(), "restored")
		var r restore.Result
		run(t, append(salvageArgs(into, from...), "--salvage-tail", "all")...).Succeeded(t, &r)
		whole(t, into, r.Revision)
		if r.Revision != 481 {
			t.Errorf("%s: it came back at revision %d, want 481", name, r.Revision)
		}
	}
}

func put(t *testing.T, client *clientv3.Client, key string) {
	t.Helper()
	_, err := client.Put(t.Context(), key, "v")
	if err != nil {
		t.Fatal(err)
	}
}

// committed waits until the database of each member is written up to the newest revision, which etcd does only now and then by itself.
func committed(t *testing.T, c *servers.Cluster) {
	t.Helper()
	now, err := c.Client(t).Get(t.Context(), "any")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Members {
		client := c.Client(t, servers.At(m))
		servers.HashKV(t, client, m.ClientURL, now.Header.Revision)
		snapshot, err := client.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, snapshot)
		err = errors.Join(err, snapshot.Close())
		if err != nil {
			t.Fatal(err)
		}
	}
}
