package archive_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/embed"
	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/test/embedded"
)

// smallFile is how large the files of the member's log are where the test purges them.
const smallFile = 256 << 10

// startSmall starts a server whose log is in small files.
func startSmall(t *testing.T) *embedded.Server {
	t.Helper()
	usual := etcdwal.SegmentSizeBytes
	t.Cleanup(func() { etcdwal.SegmentSizeBytes = usual }) // after the server has ended
	etcdwal.SegmentSizeBytes = smallFile
	return embedded.Start(t, func(c *embed.Config) { c.SnapshotCount = 10 })
}

// purge removes all files of the member's log but two, as etcd does twice a minute. Those that the member still needs are
// locked.
func purge(t *testing.T, etcd *embedded.Server) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(etcd.DataDir, "member", "wal", "*.wal"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files[:max(0, len(files)-2)] {
		locked, err := fileutil.TryLockFile(file, os.O_WRONLY, fileutil.PrivateFileMode)
		if err != nil {
			return
		}
		if err := errors.Join(os.Remove(file), locked.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// A standby that kept every file of its member's log open would fill the member's disk: what is purged takes room for as
// long as it is open. It keeps those that the repository has not got, reports them, and takes over without a gap.
func TestAStandbyLetsGoOfWhatIsStored(t *testing.T) {
	etcd, c := startSmall(t), open(t, mem.New())
	first := start(t, configOf(etcd), c)
	first.catchUp()
	second := start(t, configOf(etcd), c)
	second.wait("the second to stand by", func(s archive.Status) bool { return s.State == archive.Standby })
	const batches, puts, size = 8, 25, 40 << 10 // four files each
	client := etcd.Client(t)
	for batch := range batches {
		for i := range puts {
			if _, err := client.Put(t.Context(), fmt.Sprint("key", batch, i), strings.Repeat("x", size)); err != nil {
				t.Fatal(err)
			}
		}
		first.catchUp()
		purge(t, etcd)
	}
	second.wait("the second to report few files", func(s archive.Status) bool {
		return s.Headroom.Files > 0 && s.Headroom.UnlinkedBytes < 2*smallFile
	})
	first.stop()
	put(t, etcd, "last")
	second.catchUp()
	if _, all := stored(t, c); len(all) != batches*puts+1 {
		t.Errorf("%d requests are stored, want %d", len(all), batches*puts+1)
	}
}

// What only the agent that works knows is not reported by one that stands by again.
func TestAStandbyForgetsWhatItKnewWhenItWorked(t *testing.T) {
	etcd, c := embedded.Start(t, nil), open(t, mem.New())
	first := start(t, configOf(etcd), c)
	put(t, etcd, "key")
	first.catchUp()
	taken, held, err := c.AcquireLease(t.Context(), "archive", "another", time.Minute, time.Now().Add(2*time.Second))
	if err != nil || !held && taken.Holder == "" {
		t.Fatal(err)
	}
	first.wait("it to stand by", func(s archive.Status) bool { return s.State == archive.Standby && s.Holder == "another" })
	if s := first.status.Load(); s.Lineage != "" || s.Durable != 0 || !s.ConfirmedAt.IsZero() || s.StoredRequests != 1 {
		t.Errorf("status %+v", s)
	}
}
