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

var errSlow = errors.New("the stream did not end in time")

// store streams the snapshot into the stores. The time limit ends with the member's stream. It is there because a slow reader
// keeps a read transaction open in the member, which meanwhile cannot reuse pages.
func (r *run) store(ctx context.Context) error {
	id, err := r.to.freeID(catalog.NewID(r.started, r.manifest.Revision))
	if err != nil {
		return err
	}
	streamCtx, cancel := context.WithTimeoutCause(ctx, r.request.MaxStream, r.tooSlow())
	defer cancel()
	snapshot, err := r.member.Snapshot(streamCtx, stallAfter)
	if err != nil {
		return r.blame(streamCtx, err)
	}
	defer snapshot.Close()
	r.boundRevision(ctx)
	sealed, err := seal.New(&memberStream{run: r, ctx: streamCtx, from: io.TeeReader(r.follow(snapshot), &r.content)}, r.request.To)
	if err != nil {
		return err
	}
	defer sealed.Close()
	defer snapshot.Close() // again: deferred calls run last to first, and sealed.Close waits for the source to end

	about := max(snapshot.SnapshotSize(), r.status.DbSize)
	source, err := r.spool(sealed, about)
	if err != nil {
		return err
	}
	defer source.Close()
	s := &spread{stores: r.to, id: id, seal: r.request.To.Seal(), about: about}
	return s.run(source, func() (catalog.Manifest, error) { return r.complete(ctx, snapshot.Blob()) })
}

// spool returns the sealed stream of a database of about so many bytes as the stores read it: with a spool, when all of it is there.
func (r *run) spool(sealed io.Reader, about int64) (io.ReadCloser, error) {
	s := r.request.Spool
	if s.Dir == "" {
		return io.NopCloser(sealed), nil
	}
	file, err := s.fill(sealed, about)
	if err == nil && s.Full != nil {
		s.Full()
	}
	return file, err
}

// boundRevision records the member's current revision and raft index as upper bounds of the snapshot's revision and index. They are,
// because the content was fixed before the first message arrived. Without the bounds the backup is complete, but a less exact base
// for the log.
func (r *run) boundRevision(ctx context.Context) {
	now, err := r.member.Now(ctx)
	if err != nil {
		r.warn("the snapshot's revision has no known upper bound: %v", err)
		return
	}
	r.manifest.RevisionMax, r.manifest.RaftIndexMax = now.Header.Revision, now.RaftIndex
}

func (r *run) tooSlow() error {
	cure := "the store may be too slow for the database; --spool DIR takes the stream to disk first"
	if r.request.Spool.Dir != "" {
		cure = "the member, the network or the spool's disk is too slow for the database; allow more"
	}
	return fmt.Errorf("%w: %s allowed by --max-stream: %s", errSlow, r.request.MaxStream, cure)
}

func (r *run) follow(snapshot *cluster.Snapshot) io.Reader {
	return r.request.Report.Follow(snapshot, storage.Event{
		Stage: "stream", Message: "streaming the snapshot", Object: r.member.Endpoint, Total: snapshot.SnapshotSize(),
	})
}
