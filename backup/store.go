package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

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
	sealed, err := seal.New(&memberStream{run: r, ctx: streamCtx, from: r.follow(snapshot)}, r.request.To)
	if err != nil {
		return err
	}
	defer sealed.Close()
	defer snapshot.Close() // again: deferred calls run last to first, and sealed.Close waits for the source to end

	var source io.Reader = sealed
	if r.request.Spool != "" {
		spool, err := fillSpool(r.request.Spool, sealed)
		if err != nil {
			return err
		}
		defer spool.Close()
		source = spool
	}
	about := max(snapshot.SnapshotSize(), r.status.DbSize)
	s := &spread{stores: r.to, id: id, seal: r.request.To.Seal(), about: about}
	return s.run(source, func() (catalog.Manifest, error) { return r.complete(ctx, snapshot.Blob()) })
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
	if r.request.Spool != "" {
		cure = "the member, the network or the spool's disk is too slow for the database; allow more"
	}
	return fmt.Errorf("%w: %s allowed by --max-stream: %s", errSlow, r.request.MaxStream, cure)
}

// fillSpool writes the sealed stream to an unlinked file in dir and rewinds the file, which disappears with this process.
// No byte of it is plain if the backup is encrypted.
func fillSpool(dir string, sealed io.Reader) (*os.File, error) {
	spool, err := os.CreateTemp(dir, "dr-spool-*")
	if err != nil {
		return nil, fmt.Errorf("make a spool: %w", err)
	}
	err = os.Remove(spool.Name())
	if err == nil {
		_, err = io.Copy(spool, sealed)
		if err == nil {
			_, err = spool.Seek(0, io.SeekStart)
		}
	}
	if err != nil {
		spool.Close()
		return nil, fmt.Errorf("spool the snapshot in %s: %w", dir, err)
	}
	return spool, nil
}

func (r *run) follow(snapshot *cluster.Snapshot) io.Reader {
	return r.request.Report.Follow(snapshot, storage.Event{
		Stage: "stream", Message: "streaming the snapshot", Object: r.member.Endpoint, Total: snapshot.SnapshotSize(),
	})
}
