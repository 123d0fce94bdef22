package archive_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// TestAMissingMemberIsAwaitedInShortSteps checks that an agent without a member tries again every two seconds at the latest, for as
// long as that lasts: a history that begins when the member returns has to be archived from its start.
func TestAMissingMemberIsAwaitedInShortSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		last, tries, longest := time.Now(), 0, time.Duration(0)
		err := archive.Run(ctx, archive.Config{
			Source: segment.WAL, DataDir: t.TempDir(), // without a log
			Etcd:  cluster.Config{Endpoints: []string{"http://127.0.0.1:1"}, DialTimeout: time.Second, CommandTimeout: time.Second},
			Flush: time.Second, SegmentSize: 1 << 20, Lease: time.Second,
			Snapshot: func(context.Context, string) error { return nil },
			Report: func(e storage.Event) {
				if e.Level != storage.Warning {
					return
				}
				now := time.Now()
				longest, last = max(longest, now.Sub(last)), now
				tries++
			},
		}, open(t, mem.New()))
		if err != nil || longest != 2*time.Second || tries < 1790 || tries > 1810 {
			t.Errorf("%d tries, at most %s apart, %v", tries, longest, err)
		}
	})
}
