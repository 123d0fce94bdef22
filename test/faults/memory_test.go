package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/memory"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// TestMemory checks that memory does not grow with the database: neither a backup's, nor that of the process that waits
// while a child restores or verifies.
func TestMemory(t *testing.T) {
	if testing.Short() {
		return
	}
	smaller, larger := measure(t, 64<<20), measure(t, 512<<20)
	for verb, limit := range map[string]int64{"backup": 70, "restore": 30, "verify": 30} {
		a, b := smaller[verb]>>20, larger[verb]>>20
		t.Logf("dr %s: %d MiB at most for a database of 64 MiB, %d for 512", verb, a, b)
		if a > limit || b > limit {
			t.Errorf("dr %s takes more than %d MiB", verb, limit)
		}
		const mostApart = 10 // MiB, for databases that differ by 448
		if max(a, b)-min(a, b) > mostApart {
			t.Errorf("dr %s: %d MiB and %d are further apart than %d MiB", verb, a, b, mostApart)
		}
	}
}

// measure returns the peak memory of each verb's own process, in bytes.
func measure(t *testing.T, size int64) map[string]int64 {
	t.Helper()
	dir := t.TempDir()
	defer os.RemoveAll(dir) // half a gigabyte, several times
	source := bootGenerated(t, dir, size)
	key := newKey(t, filepath.Join(dir, "key.txt"))
	r := repo(filepath.Join(dir, "repo"))
	peaks := map[string]int64{"backup": peak(t, backupArgs(r, key, source.Endpoints())...)}
	got := r.list(t).Backups[0].Plain.Size
	if got < size || got > size*5/4 {
		t.Fatalf("the database has %d MiB, want %d", got>>20, size>>20)
	}
	source.Stop(t, 0)
	identity := []string{"--identity", key.file}
	peaks["verify"] = peak(t, r.flags("verify", append(identity, "--scratch-dir", dir)...)...)
	peaks["restore"] = peak(t, r.flags("restore", append(identity, "--output-dir", filepath.Join(dir, "restored"))...)...)
	return peaks
}

// bootGenerated starts a server on a generated database: to write one of that size with a client takes too long.
func bootGenerated(t *testing.T, dir string, size int64) *servers.Cluster {
	t.Helper()
	generated, data := filepath.Join(dir, "generated"), filepath.Join(dir, "data")
	err := database.Generate(generated, size)
	if err != nil {
		t.Fatal(err)
	}
	peer := servers.FreeURLs(t, 1)[0]
	cmd := exec.Command(servers.Tool(t, "3.7", "etcdutl"), "snapshot", "restore", generated, "--skip-hash-check",
		"--name", "m1", "--data-dir", data, "--initial-cluster", "m1="+peer, "--initial-advertise-peer-urls", peer)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	err = os.Remove(generated)
	if err != nil {
		t.Fatal(err)
	}
	return servers.Boot(t, servers.Options{}, servers.Existing{Name: "m1", DataDir: data, PeerURL: peer})
}

// peak runs dr, which must succeed, and returns the peak memory that its own process allocated, without its child's.
func peak(t *testing.T, args ...string) int64 {
	t.Helper()
	p := start(t, args...)
	watched := memory.Watch(p.PID(), memory.Alone)
	o := p.Wait(t)
	highest := watched()
	o.Succeeded(t, nil)
	return highest
}
