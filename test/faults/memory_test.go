package faults

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-dr/etcd-dr/test/servers"
)

// Memory does not grow with the database: neither that of a backup, nor that of the process that waits while a child
// restores or verifies.
func TestMemory(t *testing.T) {
	if testing.Short() {
		return
	}
	smaller, larger := measure(t, 64<<20), measure(t, 512<<20)
	for verb, limit := range map[string]int64{"backup": 100, "restore": 50, "verify": 50} {
		a, b := smaller[verb]>>20, larger[verb]>>20
		t.Logf("dr %s: %d MiB at most for a database of 64 MiB, %d for 512", verb, a, b)
		if a > limit || b > limit {
			t.Errorf("dr %s takes more than %d MiB", verb, limit)
		}
		if diff := max(a, b) - min(a, b); diff*5 > max(a, b) {
			t.Errorf("dr %s: %d MiB and %d are further apart than 20 %%", verb, a, b)
		}
	}
}

// measure is the most memory that each verb's own process takes, in bytes.
func measure(t *testing.T, size int64) map[string]int64 {
	t.Helper()
	dir := t.TempDir()
	defer os.RemoveAll(dir) // half a gigabyte, several times
	source := bootGenerated(t, dir, size)
	key := newKey(t, filepath.Join(dir, "key.txt"))
	r := repo(filepath.Join(dir, "repo"))
	peaks := map[string]int64{"backup": peak(t, backupArgs(r, key, source.Endpoints())...)}
	if got := r.list(t).Backups[0].Plain.Size; got < size || got > size*5/4 {
		t.Fatalf("the database has %d MiB, want %d", got>>20, size>>20)
	}
	source.Stop(t, 0)
	identity := []string{"--identity", key.file}
	peaks["verify"] = peak(t, r.flags("verify", append(identity, "--scratch-dir", dir)...)...)
	peaks["restore"] = peak(t, r.flags("restore", append(identity, "--output-dir", filepath.Join(dir, "restored"))...)...)
	return peaks
}

// bootGenerated starts a server on a database of that size, which no client could fill in the time.
func bootGenerated(t *testing.T, dir string, size int64) *servers.Cluster {
	t.Helper()
	generated, data := filepath.Join(dir, "generated"), filepath.Join(dir, "data")
	if err := generate(generated, size); err != nil {
		t.Fatal(err)
	}
	peer := servers.FreeURLs(t, 1)[0]
	cmd := exec.Command(servers.Tool(t, "3.7", "etcdutl"), "snapshot", "restore", generated, "--skip-hash-check",
		"--name", "m1", "--data-dir", data, "--initial-cluster", "m1="+peer, "--initial-advertise-peer-urls", peer)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Remove(generated); err != nil {
		t.Fatal(err)
	}
	return servers.Boot(t, servers.Options{}, servers.Existing{Name: "m1", DataDir: data, PeerURL: peer})
}

// generate writes a database of about that size: objects of 1 to 3 KB, a third of whose bytes do not compress.
func generate(path string, size int64) error {
	be := backend.New(backend.BackendConfig{
		Path: path, UnsafeNoFsync: true, BatchLimit: 1000, BatchInterval: time.Hour, Logger: zap.NewNop(),
	})
	tx := be.BatchTx()
	tx.LockOutsideApply()
	for _, bucket := range schema.AllBuckets {
		tx.UnsafeCreateBucket(bucket)
	}
	tx.Unlock()
	store := mvcc.NewStore(zap.NewNop(), be, &lease.FakeLessor{}, mvcc.StoreConfig{})
	random := rand.New(rand.NewPCG(1, uint64(size)))
	for i := 0; be.Size() < size; i++ {
		store.Put(fmt.Appendf(nil, "/objects/%03d/%09d", i%200, i), object(random), lease.NoLease)
	}
	store.Commit()
	if err := store.Close(); err != nil {
		return err
	}
	return be.Close()
}

func object(random *rand.Rand) []byte {
	value := make([]byte, 1000+random.IntN(2000))
	noise := len(value) / 3
	for i := range noise {
		value[i] = byte(random.Uint32())
	}
	for i := noise; i < len(value); {
		i += copy(value[i:], `{"kind":"Object","apiVersion":"v1","metadata":{"labels":{"app":"server","tier":"backend"}}}`)
	}
	return value
}

// peak runs dr, which must succeed, and returns its peak memory. That is sampled: the kernel's own figure at the end
// (ru_maxrss) counts the process that forked.
func peak(t *testing.T, args ...string) int64 {
	t.Helper()
	p := start(t, args...)
	stop, done := make(chan struct{}), make(chan int64)
	go func() {
		for highest := int64(0); ; {
			highest = max(highest, memoryOf(p.cmd.Process.Pid))
			select {
			case <-stop:
				done <- highest
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	o := p.wait(t)
	close(stop)
	highest := <-done
	o.good(t, nil)
	return highest
}

// memoryOf is the most that a process has taken so far, in bytes.
func memoryOf(pid int) int64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // it may have ended
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kb, _ := strconv.ParseInt(string(bytes.Fields(rest)[0]), 10, 64)
			return kb << 10
		}
	}
	return 0
}
