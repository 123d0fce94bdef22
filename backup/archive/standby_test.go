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
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/test/embedded"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// smallFile is the size of the files of the member's log in tests that purge them.
const smallFile = 256 << 10

// startSmall starts a server with small log files.
func startSmall(t *testing.T) *embedded.Server {
	t.Helper()
	usual := etcdwal.SegmentSizeBytes
	t.Cleanup(func() { etcdwal.SegmentSizeBytes = usual }) // after the server has ended
	etcdwal.SegmentSizeBytes = smallFile
	return embedded.Start(t, func(c *embed.Config) { c.SnapshotCount = 10 })
}

// purge removes all files of the member's log except two, as etcd does twice a minute. Files that the member still needs are
// locked, and stay.
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
		err = errors.Join(os.Remove(file), locked.Close())
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestStandbyReleasesStoredFiles checks that a standby keeps only those files of its member's log open that are not stored, reports them, and takes over
// without a gap. Purged files occupy the member's disk as long as they are open.
func TestStandbyReleasesStoredFiles(t *testing.T) {
	etcd, c := startSmall(t), open(t, mem.New())
	config := configOf(etcd)
	config.Lease = 10 * time.Second // it is not lost on a machine that stops for a moment
	first := start(t, config, c)
	first.catchUp()
	second := start(t, config, c)
	second.wait("the second to stand by", func(s archive.Status) bool { return s.State == archive.Standby })
	const batches, puts, size = 8, 25, 40 << 10 // four files each
	client := etcd.Client(t)
	for batch := range batches {
		for i := range puts {
			_, err := client.Put(t.Context(), fmt.Sprint("key", batch, i), strings.Repeat("x", size))
			if err != nil {
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
	_, all := stored(t, c)
	if len(all) != batches*puts+1 {
		t.Errorf("%d requests are stored, want %d", len(all), batches*puts+1)
	}
}

// TestStandbyReportsNoOldFields checks that an agent that returns to standby no longer reports the fields that only the working agent knows.
func TestStandbyReportsNoOldFields(t *testing.T) {
	etcd, c := embedded.Start(t, nil), open(t, mem.New())
	first := start(t, configOf(etcd), c)
	put(t, etcd, "key")
	first.catchUp()
	taken, held, err := c.Leases().Acquire(t.Context(), "archive", "another", lease.Term{TTL: time.Minute, Now: time.Now().Add(2 * time.Second)})
	if err != nil || !held && taken.Holder == "" {
		t.Fatal(err)
	}
	first.wait("it to stand by", func(s archive.Status) bool { return s.State == archive.Standby && s.Holder == "another" })
	s := first.status.Load()
	if s.Lineage != "" || s.Durable != 0 || !s.ConfirmedAt.IsZero() || s.StoredRequests != 1 {
		t.Errorf("status %+v", s)
	}
}

// TestFilesWithoutARequestAreNoGap has the member log many entries without changes, such as requests for alarms. The position is stored all the same, so that a
// restarted agent continues the log after the files are purged.
func TestFilesWithoutARequestAreNoGap(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of requests")
	}
	etcd, c := startSmall(t), open(t, mem.New())
	config := configOf(etcd)
	a := start(t, config, c)
	put(t, etcd, "key")
	a.catchUp()
	before := a.status.Load().Durable
	client := etcd.Client(t)
	for range 2 * smallFile / 40 { // bytes that one takes at least
		_, err := client.AlarmList(t.Context())
		if err != nil {
			t.Fatal(err)
		}
	}
	a.wait("the place to be stored", func(s archive.Status) bool { return s.Durable > before+smallFile/80 })
	a.stop()
	purge(t, etcd)
	a = start(t, config, c)
	put(t, etcd, "another")
	a.catchUp()
	_, all := stored(t, c)
	if len(all) != 2 {
		t.Errorf("%d requests are stored, want 2", len(all))
	}
}

// TestAMismatchThatPassesIsWaitedOut checks that an agent that has worked waits while another cluster responds at the endpoints, as during a restore.
func TestAMismatchThatPassesIsWaitedOut(t *testing.T) {
	etcd, c := embedded.Start(t, nil), open(t, mem.New())
	other := embedded.Start(t, nil)
	proxy := objectstores.NewProxy(t, strings.TrimPrefix(etcd.URL, "http://"))
	config := configOf(etcd)
	config.Etcd.Endpoints, config.Etcd.CommandTimeout = []string{"http://" + proxy.Address}, time.Second
	a := start(t, config, c)
	a.catchUp()
	proxy.Cut()
	a.wait("the turn to end", func(s archive.Status) bool { return s.State == archive.Waiting })
	proxy.Retarget(strings.TrimPrefix(other.URL, "http://"))
	a.wait("the other cluster to be reported", func(s archive.Status) bool {
		return s.State == archive.Waiting && strings.Contains(s.Problem, "is of cluster")
	})
	proxy.Retarget(strings.TrimPrefix(etcd.URL, "http://"))
	put(t, etcd, "key")
	a.catchUp()
}
