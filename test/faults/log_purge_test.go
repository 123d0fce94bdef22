package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// TestStandbyReleasesPurgedFiles has etcd purge log files of the usual size while one agent works and another stands by. At
// no time may either agent occupy the space of two purged files.
func TestStandbyReleasesPurgedFiles(t *testing.T) {
	if testing.Short() {
		return
	}
	purgeUnderTwoAgents(t, 270<<20)
}

func TestSoakStandbyReleasesPurgedFiles(t *testing.T) {
	if !soak.On() {
		return
	}
	purgeUnderTwoAgents(t, 500<<20)
}

// purgeUnderTwoAgents writes bytes to a member that keeps two files of its log, waits until the member has purged the others,
// and checks the unlinked bytes that its two agents held meanwhile.
func purgeUnderTwoAgents(t *testing.T, bytes int) {
	c := servers.Start(t, servers.Options{ExtraArgs: []string{"--max-wals", "2", "--snapshot-count", "10"}})
	logDir := filepath.Join(c.Members[0].DataDir, "member", "wal")
	env := []string{"DR_REPO=file://" + t.TempDir(), "DR_CLUSTER=" + clusterName}
	access := []string{"--plain", "--endpoints", c.Members[0].ClientURL}
	agents := []*agent.Agent{
		agent.Start(t, env, c.Members[0].DataDir, access...), agent.Start(t, env, c.Members[0].DataDir, access...),
	}
	agent.Settled(t, agents...)
	unlinked := watchUnlinked(t, logDir, agents)
	const size, unstored = 1 << 20, 32 << 20 // bytes of one value, and of all values that may not be stored yet
	client, value := c.Client(t), strings.Repeat("x", size)
	for written := 0; written < bytes; written += size {
		_, err := client.Put(t.Context(), "key", value)
		if err != nil {
			t.Fatal(err)
		}
		if written%unstored == 0 {
			agent.CatchUp(t, agents...)
		}
	}
	agent.CatchUp(t, agents...)
	untilPurged(t, logDir)
	for i, most := range unlinked() {
		t.Logf("agent %d held %d unlinked bytes at most", i, most)
		if most >= 2*etcdwal.SegmentSizeBytes {
			t.Errorf("agent %d held %d unlinked bytes, which are two files or more", i, most)
		}
	}
}

// untilPurged waits until a member, which purges every 30 s, has removed all files of its log except two.
func untilPurged(t *testing.T, logDir string) {
	t.Helper()
	for end := time.Now().Add(hangs); ; time.Sleep(50 * time.Millisecond) {
		files, err := filepath.Glob(filepath.Join(logDir, "*.wal"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 2 {
			t.Logf("the log's newest file is %s", filepath.Base(files[1]))
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the log still has %d files", len(files))
		}
	}
}

// watchUnlinked measures the unlinked bytes of each agent until end is called, which measures them once more and returns the
// most bytes that each agent held at one time.
func watchUnlinked(t *testing.T, dir string, agents []*agent.Agent) (end func() []int64) {
	t.Helper()
	most := make([]int64, len(agents))
	look := func() {
		for i, a := range agents {
			most[i] = max(most[i], unlinkedBytes(a.PID(), dir))
		}
	}
	done := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			look()
			select {
			case <-done:
				return
			case <-time.After(observeEvery):
			}
		}
	})
	stop := sync.OnceFunc(func() { close(done); looking.Wait() })
	t.Cleanup(stop)
	return func() []int64 { stop(); look(); return most }
}

// unlinkedBytes returns the total size of the log files that a process has open although they were removed from dir.
func unlinkedBytes(pid int, dir string) (bytes int64) {
	descriptors, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is valid
	for _, d := range descriptors {
		file, err := os.Readlink(d)
		if err != nil || filepath.Dir(file) != dir || !strings.HasSuffix(file, ".wal (deleted)") {
			continue // closed meanwhile, or another file
		}
		info, err := os.Stat(d)
		if err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}
