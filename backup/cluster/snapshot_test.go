package cluster_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/snapshot"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// openFake opens the snapshot of a fake member that runs send.
func openFake(
	t *testing.T, ctx context.Context, stallAfter time.Duration, send func(pb.Maintenance_SnapshotServer) error,
) (*cluster.Snapshot, error) {
	t.Helper()
	fake := &fakeMember{clusterID: 9, memberID: 1, snapshot: send}
	c := connect(t, at("http://"+fake.serve(t)))
	return c.Servers[0].Snapshot(ctx, stallAfter)
}

func mustOpen(t *testing.T, send func(pb.Maintenance_SnapshotServer) error) *cluster.Snapshot {
	t.Helper()
	s, err := openFake(t, t.Context(), time.Minute, send)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func blobOf(data []byte) catalog.Blob {
	sum := sha256.Sum256(data)
	return catalog.Blob{Name: "snapshot.db", Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
}

// TestSnapshotIsEtcdctlsFile checks that the stream equals the file that etcdctl snapshot save writes, byte for byte.
func TestSnapshotIsEtcdctlsFile(t *testing.T) {
	t.Parallel()
	data := database(1 << 20)
	fake := &fakeMember{clusterID: 9, memberID: 1, snapshot: func(stream pb.Maintenance_SnapshotServer) error {
		return sendInPieces(stream, data, 32<<10)
	}}
	url := "http://" + fake.serve(t)
	path := filepath.Join(t.TempDir(), "snapshot.db")
	cfg := clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop()}
	_, err := snapshot.SaveWithVersion(t.Context(), zap.NewNop(), cfg, path)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := connect(t, at(url)).Servers[0].Snapshot(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := io.ReadAll(s)
	if err != nil || !bytes.Equal(got, saved) || s.Blob() != blobOf(saved) {
		t.Errorf("%d bytes, %v, %+v; etcdctl has %d, %+v", len(got), err, s.Blob(), len(saved), blobOf(saved))
	}
}

func TestSnapshotOfARealServer(t *testing.T) {
	t.Parallel()
	url, _ := startEtcd(t, nil)
	client := clientOf(t, url, nil)
	for i := range 20 {
		_, err := client.Put(t.Context(), fmt.Sprint("key", i), string(make([]byte, 10_000)))
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := connect(t, at(url)).Servers[0].Snapshot(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := io.ReadAll(s)
	if err != nil {
		t.Fatal(err)
	}
	if s.SnapshotSize() != int64(len(got)) || len(got) < 200_000 {
		t.Errorf("it said %d bytes, and sent %d", s.SnapshotSize(), len(got))
	}
	for range 2 { // Blob may be called more than once
		if s.Blob() != blobOf(got) {
			t.Errorf("blob %+v, want %+v", s.Blob(), blobOf(got))
		}
	}
	sum := sha256.Sum256(got[:len(got)-sha256.Size])
	if !bytes.Equal(sum[:], got[len(got)-sha256.Size:]) {
		t.Error("it does not end with the digest of what stands before")
	}
}

func TestSnapshotWhole(t *testing.T) {
	t.Parallel()
	small, big := database(512), database(3*512*1024)
	for _, test := range []struct {
		name string
		data []byte
		send func(pb.Maintenance_SnapshotServer) error
	}{
		{"bytes one by one", small, func(s pb.Maintenance_SnapshotServer) error { return sendInPieces(s, small, 1) }},
		{"digest over messages", small, func(s pb.Maintenance_SnapshotServer) error { return sendInPieces(s, small, 31) }},
		{"one message", small, func(s pb.Maintenance_SnapshotServer) error { return sendInPieces(s, small, len(small)) }},
		{"as a server does", big, func(s pb.Maintenance_SnapshotServer) error { return sendInPieces(s, big, 32<<10) }},
		{"odd pieces", big, func(s pb.Maintenance_SnapshotServer) error { return sendInPieces(s, big, 33_333) }},
		{"big messages", big, func(s pb.Maintenance_SnapshotServer) error { return sendInPieces(s, big, 1<<20) }},
		{"empty messages between", small, func(s pb.Maintenance_SnapshotServer) error {
			for i := range 10 {
				err := s.Send(&pb.SnapshotResponse{})
				if err != nil {
					return err
				}
				err = sendInPieces(s, small[i*54:min((i+1)*54, len(small))], 54)
				if err != nil {
					return err
				}
			}
			return sendInPieces(s, small[540:], 54)
		}},
	} {
		for how, reader := range map[string]func(io.Reader) io.Reader{
			"": func(r io.Reader) io.Reader { return r }, " in ones": iotest.OneByteReader, " in halves": iotest.HalfReader,
		} {
			t.Run(test.name+how, func(t *testing.T) {
				s := mustOpen(t, test.send)
				got, err := io.ReadAll(reader(s))
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, test.data) || s.Blob() != blobOf(test.data) {
					t.Errorf("%d bytes and %+v, want %d and %+v", len(got), s.Blob(), len(test.data), blobOf(test.data))
				}
				n, err := s.Read(make([]byte, 1))
				if n != 0 || err != io.EOF {
					t.Errorf("a Read after the end: %d, %v", n, err)
				}
			})
		}
	}
}

func TestSnapshotDamaged(t *testing.T) {
	t.Parallel()
	data := database(4096)
	flipped := func(at int) []byte {
		c := bytes.Clone(data)
		c[at] ^= 1
		return c
	}
	for name, sent := range map[string][]byte{
		"first byte":                     flipped(0),
		"last byte of the database":      flipped(4095),
		"first byte of the digest":       flipped(4096),
		"last byte of the digest":        flipped(len(data) - 1),
		"no digest":                      data[:4096],
		"cut in the digest":              data[:4096+31],
		"cut in the database":            data[:1000],
		"cut on a page":                  data[:512],
		"cut where a digest could be":    data[:512+32],
		"one byte":                       data[:1],
		"a digest alone":                 data[:32],
		"a byte behind the digest":       append(bytes.Clone(data), 0),
		"a page behind the digest":       append(bytes.Clone(data), make([]byte, 512)...),
		"the digest twice":               append(bytes.Clone(data), data[4096:]...),
		"a first page that is not there": data[512:],
	} {
		for _, size := range []int{7, 64, 32 << 10} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				s := mustOpen(t, func(stream pb.Maintenance_SnapshotServer) error { return sendInPieces(stream, sent, size) })
				_, err := io.ReadAll(s)
				if !errors.Is(err, cluster.ErrDigest) {
					t.Errorf("error %v, want %v", err, cluster.ErrDigest)
				}
				_, again := s.Read(make([]byte, 1))
				if !errors.Is(again, cluster.ErrDigest) {
					t.Errorf("the next Read forgets: %v", again)
				}
			})
		}
	}
	t.Run("nothing at all", func(t *testing.T) {
		_, err := openFake(t, t.Context(), time.Minute, func(pb.Maintenance_SnapshotServer) error { return nil })
		if !errors.Is(err, cluster.ErrDigest) || errors.Is(err, io.EOF) {
			t.Errorf("error %v, want one that nobody takes for an end", err)
		}
	})
	t.Run("empty messages and an end", func(t *testing.T) {
		s := mustOpen(t, func(stream pb.Maintenance_SnapshotServer) error { return stream.Send(&pb.SnapshotResponse{}) })
		_, err := io.ReadAll(s)
		if !errors.Is(err, cluster.ErrDigest) {
			t.Errorf("error %v", err)
		}
	})
}

func TestSnapshotThatFails(t *testing.T) {
	t.Parallel()
	data := database(4096)
	broken := status.Error(codes.Internal, "the disk is on fire")
	for _, at := range []int{1, 511, 4096, len(data)} {
		t.Run(fmt.Sprint("status after ", at), func(t *testing.T) {
			s := mustOpen(t, func(stream pb.Maintenance_SnapshotServer) error {
				err := sendInPieces(stream, data[:at], 100)
				if err != nil {
					return err
				}
				return broken
			})
			got, err := io.ReadAll(s)
			wantWords(t, err, "the disk is on fire", "http://127.0.0.1:", fmt.Sprintf("after %d bytes", at))
			if len(got) != at {
				t.Errorf("%d bytes came, want %d", len(got), at)
			}
		})
	}
	t.Run("status before anything", func(t *testing.T) {
		_, err := openFake(t, t.Context(), time.Minute, func(pb.Maintenance_SnapshotServer) error { return broken })
		wantWords(t, err, "open the snapshot of http://127.0.0.1:", "the disk is on fire")
	})
}

func TestSnapshotStalls(t *testing.T) {
	t.Parallel()
	const stallAfter = 200 * time.Millisecond
	data := database(4096)
	idle := func(stream pb.Maintenance_SnapshotServer) error { <-stream.Context().Done(); return nil }
	emptyForever := func(stream pb.Maintenance_SnapshotServer) error {
		for {
			err := stream.Send(&pb.SnapshotResponse{})
			if err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	}
	after := func(n int, then func(pb.Maintenance_SnapshotServer) error) func(pb.Maintenance_SnapshotServer) error {
		return func(stream pb.Maintenance_SnapshotServer) error {
			err := sendInPieces(stream, data[:n], 100)
			if err != nil {
				return err
			}
			return then(stream)
		}
	}
	for name, send := range map[string]func(pb.Maintenance_SnapshotServer) error{
		"nothing comes":                     idle,
		"nothing more comes":                after(1000, idle),
		"the end does not come":             after(len(data), idle),
		"empty messages for ever":           emptyForever,
		"empty messages for ever after 512": after(512, emptyForever),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			s, err := openFake(t, ctx, stallAfter, send)
			if err == nil {
				defer s.Close()
				_, err = io.ReadAll(s)
			}
			if !errors.Is(err, cluster.ErrStalled) {
				t.Errorf("error %v, want %v", err, cluster.ErrStalled)
			}
			wantWords(t, err, stallAfter.String())
		})
	}
}

// paced is a fake of a server that sends a message at a fixed interval.
type paced struct {
	pb.MaintenanceClient
	data  []byte
	every time.Duration
}

func (p *paced) Snapshot(ctx context.Context, _ *pb.SnapshotRequest, _ ...grpc.CallOption) (pb.Maintenance_SnapshotClient, error) {
	return &pacedStream{ctx: ctx, paced: *p}, nil
}

type pacedStream struct {
	grpc.ClientStream
	ctx context.Context
	paced
}

func (p *pacedStream) Recv() (*pb.SnapshotResponse, error) {
	select {
	case <-p.ctx.Done():
		return nil, status.FromContextError(p.ctx.Err()).Err()
	case <-time.After(p.every):
	}
	if len(p.data) == 0 {
		return nil, io.EOF
	}
	n := min(1032, len(p.data))
	message := &pb.SnapshotResponse{Blob: p.data[:n]}
	p.data = p.data[n:]
	return message, nil
}

// TestSnapshotOfASlowServer checks that a server may take almost stallAfter for each message, and no longer.
func TestSnapshotOfASlowServer(t *testing.T) {
	for every, want := range map[time.Duration]error{1900 * time.Millisecond: nil, 2100 * time.Millisecond: cluster.ErrStalled} {
		synctest.Test(t, func(t *testing.T) {
			s, err := cluster.ServerOf(&paced{data: database(4096), every: every}).Snapshot(t.Context(), 2*time.Second)
			if err == nil {
				defer s.Close()
				_, err = io.ReadAll(s)
			}
			if !errors.Is(err, want) {
				t.Errorf("with a message every %s: error %v, want %v", every, err, want)
			}
		})
	}
}

// TestSnapshotForASlowReader checks that a slow consumer of the stream does not end it: that time is not the member's,
// and has another limit.
func TestSnapshotForASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := cluster.ServerOf(&paced{data: database(4096), every: time.Millisecond}).Snapshot(t.Context(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for range 3 { // before the first Read, and before those that must wait for more
			time.Sleep(time.Minute)
			_, err := io.ReadFull(s, make([]byte, 1100))
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err = io.ReadAll(s)
		if err != nil {
			t.Error(err)
		}
	})
}

func TestSnapshotCancelled(t *testing.T) {
	t.Parallel()
	data := database(4096)
	reason := errors.New("the user has changed their mind")
	for _, at := range []int{0, 100, 4096} {
		t.Run(fmt.Sprint("after ", at), func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			gone := make(chan struct{})
			s, err := openFake(t, ctx, time.Minute, func(stream pb.Maintenance_SnapshotServer) error {
				defer close(gone)
				err := sendInPieces(stream, data[:at], 100)
				if err != nil {
					return err
				}
				time.AfterFunc(50*time.Millisecond, func() { cancel(reason) })
				<-stream.Context().Done()
				return nil
			})
			if err == nil {
				defer s.Close()
				_, err = io.ReadAll(s)
			}
			if !errors.Is(err, reason) {
				t.Errorf("error %v, want the cause", err)
			}
			<-gone // the member sees the end
		})
	}
	t.Run("at a deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, reason)
		defer cancel()
		s, err := openFake(t, ctx, time.Minute, func(stream pb.Maintenance_SnapshotServer) error {
			err := sendInPieces(stream, data[:100], 100)
			if err != nil {
				return err
			}
			<-stream.Context().Done()
			return nil
		})
		if err == nil { // it began before the deadline
			defer s.Close()
			_, err = io.ReadAll(s)
		}
		if !errors.Is(err, reason) {
			t.Errorf("error %v, want the cause", err)
		}
	})
}

func TestSnapshotClose(t *testing.T) {
	t.Parallel()
	data := database(1 << 20)
	gone := make(chan struct{})
	s := mustOpen(t, func(stream pb.Maintenance_SnapshotServer) error {
		defer close(gone)
		err := sendInPieces(stream, data, 32<<10)
		if err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	})
	_, err := io.ReadFull(s, make([]byte, 1000))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := s.Close()
		if err != nil {
			t.Error(err)
		}
	}
	<-gone
	_, err = io.ReadAll(s)
	if err == nil {
		t.Error("a closed stream ends as if it were whole")
	}

	whole := mustOpen(t, func(stream pb.Maintenance_SnapshotServer) error { return sendInPieces(stream, data, 32<<10) })
	_, err = io.ReadAll(whole)
	if err != nil {
		t.Fatal(err)
	}
	whole.Close()
	_, err = whole.Read(make([]byte, 1))
	if err != io.EOF || whole.Blob() != blobOf(data) {
		t.Errorf("after its end Close changes a stream: %v, %+v", err, whole.Blob())
	}
}
