package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Errors of a snapshot stream, to be matched with errors.Is.
var (
	// ErrDigest means that the SHA-256 that etcd sends after the database does not match it, or is missing.
	ErrDigest = errors.New("the snapshot does not match the digest that etcd sent with it")
	// ErrStalled means that no bytes arrive any more.
	ErrStalled = errors.New("the snapshot stream stalled")
)

// Snapshot is a member's database as a stream: the file followed by its SHA-256, in the format of etcdctl snapshot
// save. It ends with io.EOF only if the digest is right. Of its methods, only Close may be called during a Read.
type Snapshot struct {
	ctx        context.Context // of the call; not stream.Context, which ends at every error of the server and so would hide it from reason
	from       string          // the member's endpoint
	stream     pb.Maintenance_SnapshotClient
	cancel     context.CancelCauseFunc
	unlink     func() bool // ends the effect of the caller's context on ctx
	stall      *time.Timer // cancels ctx after stallAfter
	stallAfter time.Duration
	total      int64   // SnapshotSize
	size       int64   // bytes that Read has returned
	rest       []byte  // received and not yet returned
	digest     trailer // of the bytes that Read has returned
	endedBy    error   // nil until the stream has ended
}

// SnapshotSize returns the number of bytes that the stream will have, including the digest, as announced in the
// server's first message; 0 if the server did not announce it.
func (s *Snapshot) SnapshotSize() int64 { return s.total }

// Snapshot opens the stream. The database is as it was when the server sent the first message. If no byte arrives
// for stallAfter, the stream ends with ErrStalled. Only bytes count, not messages, because a failed server may send empty
// messages for ever. The time between Reads does not count, because then the server waits for the reader. Cancelling ctx
// ends the stream; the caller must call Close in any case.
func (s *Server) Snapshot(ctx context.Context, stallAfter time.Duration) (*Snapshot, error) {
	// The server must not get the deadline of ctx: it might end the stream a moment before ctx ends, and its error would
	// hide the cause of ctx.
	streamCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	snapshot := &Snapshot{ctx: streamCtx, from: s.Endpoint, cancel: cancel, stallAfter: stallAfter, digest: trailer{hash: sha256.New()}}
	snapshot.unlink = context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	snapshot.stall = time.AfterFunc(stallAfter, func() {
		cancel(fmt.Errorf("%w: no byte came for %s", ErrStalled, stallAfter))
	})
	stream, err := s.remote.Snapshot(streamCtx, &pb.SnapshotRequest{}, grpc.ForceCodecV2(newPieceCodec()))
	if err == nil {
		snapshot.stream = stream
		var first *pb.SnapshotResponse
		first, err = stream.Recv()
		if err == nil {
			snapshot.stall.Stop()
			snapshot.rest = first.Blob
			snapshot.total = int64(first.RemainingBytes) + int64(len(first.Blob)) + sha256.Size
			return snapshot, nil
		}
	}
	if err == io.EOF {
		err = snapshot.digest.check()
	} else {
		err = reason(streamCtx, err)
	}
	snapshot.Close()
	return nil, fmt.Errorf("open the snapshot of %s: %w", s.Endpoint, err)
}

func (s *Snapshot) Read(p []byte) (int, error) {
	if len(s.rest) == 0 && s.endedBy == nil {
		s.stall.Reset(s.stallAfter)
		for len(s.rest) == 0 && s.endedBy == nil {
			s.rest, s.endedBy = s.receive()
		}
		s.stall.Stop()
	}
	if len(s.rest) == 0 {
		return 0, s.endedBy
	}
	n := copy(p, s.rest)
	s.digest.write(s.rest[:n])
	s.rest, s.size = s.rest[n:], s.size+int64(n)
	return n, nil
}

func (s *Snapshot) receive() ([]byte, error) {
	message, err := s.stream.Recv()
	if err == io.EOF {
		err = s.digest.check()
		if err != io.EOF {
			err = fmt.Errorf("read the snapshot of %s: %w", s.from, err)
		}
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("read the snapshot of %s after %d bytes: %w", s.from, s.size, reason(s.ctx, err))
	}
	return message.Blob, nil
}

// Blob returns the size and digest of the whole stream, once it has ended with io.EOF.
func (s *Snapshot) Blob() catalog.Blob {
	return catalog.Blob{Name: "snapshot.db", Size: s.size, SHA256: hex.EncodeToString(s.digest.whole())}
}

// Close ends the stream. It may be called at any time, and more than once.
func (s *Snapshot) Close() error {
	s.stall.Stop()
	s.unlink()
	s.cancel(errors.New("the snapshot stream was closed"))
	return nil
}

// reason returns the cause of ctx, in place of gRPC's "canceled", if ctx has ended. Otherwise it returns err, explained.
func reason(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause != nil {
		return cause
	}
	return explain(err)
}

// trailer hashes a stream whose last 32 bytes are the SHA-256 of the bytes before them. It hashes bytes only when 32 more
// have followed.
type trailer struct {
	hash hash.Hash
	tail []byte // the last bytes seen, at most 32, not yet hashed
	size int64
}

func (t *trailer) write(p []byte) {
	t.size += int64(len(p))
	if len(p) >= sha256.Size {
		t.hash.Write(t.tail)
		t.hash.Write(p[:len(p)-sha256.Size])
		t.tail = append(t.tail[:0], p[len(p)-sha256.Size:]...)
		return
	}
	t.tail = append(t.tail, p...)
	over := len(t.tail) - sha256.Size
	if over > 0 {
		t.hash.Write(t.tail[:over])
		t.tail = append(t.tail[:0], t.tail[over:]...)
	}
}

// check returns io.EOF if the stream was complete and its digest matches, else an error that matches ErrDigest. The size
// of a database is a multiple of 512, so a stream that ended before its digest is detected too (etcdutl/snapshot,
// hasChecksum).
func (t *trailer) check() error {
	if t.size%512 != sha256.Size {
		return fmt.Errorf("%w: it ended after %d bytes, before its digest", ErrDigest, t.size)
	}
	if !bytes.Equal(t.hash.Sum(nil), t.tail) {
		return fmt.Errorf("%w: %d bytes", ErrDigest, t.size)
	}
	return io.EOF
}

// whole returns the digest of the whole stream, including the last 32 bytes. No write may follow.
func (t *trailer) whole() []byte {
	t.hash.Write(t.tail)
	t.tail = nil
	return t.hash.Sum(nil)
}
