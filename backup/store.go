package backup

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

var errSlow = errors.New("the stream of the snapshot took too long")

// storeSnapshot streams the snapshot into the stores. The time limit covers only the member's stream: a slow reader keeps a
// read transaction open in the member, which meanwhile cannot reuse pages.
func (r *run) storeSnapshot(ctx context.Context) error {
	id, err := r.to.freeID(catalog.NewID(r.started, r.manifest.Revision))
	if err != nil {
		return err
	}
	streamCtx, cancel := context.WithTimeoutCause(ctx, r.request.MaxStream, r.slowError())
	defer cancel()
	snapshot, err := r.member.Snapshot(streamCtx, stallAfter)
	if err != nil {
		return r.blame(streamCtx, err)
	}
	defer snapshot.Close()
	r.recordUpperBounds(ctx)
	sealed, err := seal.New(&memberStream{run: r, ctx: streamCtx, from: io.TeeReader(r.follow(snapshot), &r.content)}, r.request.To)
	if err != nil {
		return err
	}
	defer sealed.Close()
	defer snapshot.Close() // again: deferred calls run last to first, and sealed.Close waits for the source to end

	estimate := max(snapshot.SnapshotSize(), r.status.DbSize)
	source, err := r.spool(sealed, estimate)
	if err != nil {
		return err
	}
	defer source.Close()
	s := &spread{stores: r.to, id: id, seal: r.request.To.Seal(), about: estimate}
	return s.run(source, func() (catalog.Manifest, error) { return r.complete(ctx, snapshot.Blob()) })
}

// spool returns the stream for the stores to read. If the request has a spool, all of sealed is written there first. estimate is
// the approximate size of the database in bytes.
func (r *run) spool(sealed io.Reader, estimate int64) (io.ReadCloser, error) {
	s := r.request.Spool
	if s.Dir == "" {
		return io.NopCloser(sealed), nil
	}
	file, err := s.fill(sealed, estimate)
	if err == nil && s.Full != nil {
		s.Full()
	}
	return file, err
}

// recordUpperBounds records the member's current revision and raft index as upper bounds of the snapshot's: the member fixed the
// content before it sent the first message. Without them the backup is still complete, but its place in the log is known less
// exactly.
func (r *run) recordUpperBounds(ctx context.Context) {
	now, err := r.member.Now(ctx)
	if err != nil {
		r.warn("the snapshot's revision has no known upper bound: %v", err)
		return
	}
	r.manifest.RevisionMax, r.manifest.RaftIndexMax = now.Header.Revision, now.RaftIndex
}

func (r *run) slowError() error {
	remedy := "the store may be too slow for the database: --spool DIR writes the stream to disk first"
	if r.request.Spool.Dir != "" {
		remedy = "the member, the network or the spool's disk is too slow for the database: raise --max-stream"
	}
	return fmt.Errorf("%w: more than %s (--max-stream): %s", errSlow, r.request.MaxStream, remedy)
}

func (r *run) follow(snapshot *cluster.Snapshot) io.Reader {
	return r.request.Report.Follow(snapshot, storage.Event{
		Stage: "stream", Message: "streaming the snapshot", Object: r.member.Endpoint, Total: snapshot.SnapshotSize(),
	})
}
