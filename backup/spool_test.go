package backup_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/mem"
)

// TestSpoolIsBoundByTheDatabase backs up a member that sends more than the database that it has announced: it could fill the disk on which
// the spools of others wait.
func TestSpoolIsBoundByTheDatabase(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	fake := &fakeMember{clusterID: 9, memberID: 1, snapshot: func(stream pb.Maintenance_SnapshotServer) error {
		random, piece := rand.NewChaCha8([32]byte{1}), make([]byte, 1<<20)
		for ; ; sent.Add(int64(len(piece))) {
			random.Read(piece) // never fails
			err := stream.Send(&pb.SnapshotResponse{Blob: piece})
			if err != nil {
				return err
			}
		}
	}}
	to := open(t, mem.New())
	r, _ := request(t)
	r.Spool.Dir = t.TempDir()
	_, err := backup.Run(t.Context(), at(fake.serve(t)), only(to), r)
	if err == nil || !strings.Contains(err.Error(), "has sent more than the 2.1 MiB that its database can take") {
		t.Errorf("error %v", err)
	}
	if sent.Load() > 64<<20 {
		t.Errorf("the member has sent %d bytes", sent.Load())
	}
	wantNothing(t, to)
	wantEmpty(t, r.Spool.Dir)
}

// TestSpoolsShareARoom starts backups while others wait in the spool for a store that takes nothing yet. One that finds no room fails
// before it burdens a store, and succeeds when another has been uploaded.
func TestSpoolsShareARoom(t *testing.T) {
	t.Parallel()
	url := (&fakeMember{clusterID: 9, memberID: 1, database: database(4 << 20)}).serve(t)
	room, dir := backup.NewRoom(20<<20), t.TempDir()
	take := func(ctx context.Context, owner string, b storage.Bucket) error {
		r, _ := request(t)
		r.Spool = backup.Spool{Dir: dir, Room: room, Owner: owner}
		_, err := backup.Run(ctx, at(url), only(open(t, b)), r)
		return err
	}
	a := holdUpload(t, func(ctx context.Context, b storage.Bucket) error { return take(ctx, "a", b) })
	wantRoom := func(owner string, want bool) {
		t.Helper()
		b := mem.New()
		err := take(t.Context(), owner, b)
		if want && err != nil || !want && (!errors.Is(err, fault.Busy) || !strings.Contains(err.Error(), "5.2 MiB")) {
			t.Errorf("room for %s: %v, want %t", owner, err, want)
		}
		if !want {
			wantNothing(t, open(t, b))
		}
	}
	wantRoom("a", true) // 5.2 MiB during the stream, as 16 are free and a has 4
	second := holdUpload(t, func(ctx context.Context, b storage.Bucket) error { return take(ctx, "a", b) })
	wantRoom("a", false) // 12 are free, and a has 8
	wantRoom("b", true)
	second()
	wantRoom("a", true)
	a()
}

// holdUpload starts a backup, and returns when its stream has ended and only the upload remains, which begins with release.
func holdUpload(t *testing.T, take func(context.Context, storage.Bucket) error) (release func()) {
	t.Helper()
	began, free, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	b := &watched{Bucket: mem.New(), before: func(key string) {
		if strings.Contains(key, catalog.SnapshotName) {
			close(began)
			<-free
		}
	}}
	go func() { ended <- take(t.Context(), b) }()
	select {
	case <-began:
	case err := <-ended:
		t.Fatalf("the backup has ended: %v", err)
	}
	return func() {
		close(free)
		err := <-ended
		if err != nil {
			t.Error(err)
		}
	}
}

// TestSpoolIsFull checks that Full is called after the member's stream and before the upload has ended, and never without a spool.
func TestSpoolIsFull(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1, database: database(4 << 20)}
	cfg := at(fake.serve(t))
	full := make(chan int64, 2)
	r, _ := request(t)
	r.Spool = backup.Spool{Dir: t.TempDir(), Full: func() { full <- fake.open.Load() }}
	upload := holdUpload(t, func(ctx context.Context, b storage.Bucket) error { return taken(ctx, t, cfg, b, r) })
	if len(full) != 1 {
		t.Errorf("Full was called %d times before the upload", len(full))
	}
	upload()
	r.Spool.Dir = ""
	err := taken(t.Context(), t, cfg, mem.New(), r)
	if err != nil || len(full) != 1 {
		t.Errorf("without a spool: %v, Full was called %d times", err, len(full)-1)
	}
}

func taken(ctx context.Context, t *testing.T, cfg cluster.Config, b storage.Bucket, r backup.Request) error {
	_, err := backup.Run(ctx, cfg, only(open(t, b)), r)
	return err
}
