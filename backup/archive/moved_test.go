//go:build linux

package archive_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/mount"
)

// TestReplacedUnderContainer checks that an agent ends once its container shows a data dir that has left its place on the host: a container
// that is started again shows the new one. It waits for the member as before while the data dir is at its place.
func TestReplacedUnderContainer(t *testing.T) {
	if !mount.Alone(t) {
		return
	}
	for name, replace := range map[string]func(dir string) error{
		"renamed": func(dir string) error { return os.Rename(dir, dir+".old") },
		"removed": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			onHost, inContainer := filepath.Join(t.TempDir(), "etcd"), t.TempDir()
			err := os.Mkdir(onHost, 0o700)
			if err != nil {
				t.Fatal(err)
			}
			mount.Bind(t, onHost, inContainer)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				ended <- archive.Run(ctx, archive.Config{
					Source: segment.WAL, DataDir: inContainer,
					Etcd:  cluster.Config{Endpoints: []string{"http://127.0.0.1:1"}, DialTimeout: time.Second, CommandTimeout: time.Second},
					Flush: time.Second, SegmentSize: 1 << 20, Lease: time.Second,
					Snapshot: func(context.Context, string) error { return nil },
				}, open(t, mem.New()))
			}()
			select {
			case err = <-ended:
				t.Fatalf("it ended while the data dir was at its place: %v", err)
			case <-time.After(time.Second):
			}
			err = replace(onHost)
			if err != nil {
				t.Fatal(err)
			}
			err = <-ended
			if err == nil || !strings.Contains(err.Error(), "start the container again") {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}
