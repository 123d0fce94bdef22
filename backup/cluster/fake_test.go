package cluster_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// fakeMember is a server with answers that a real one never gives.
type fakeMember struct {
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedClusterServer
	pb.UnimplementedKVServer
	pb.UnimplementedAuthServer

	clusterID, memberID uint64
	members             []*pb.Member
	noMembers           bool     // its member list fails
	refusal             error    // of any read of a key
	errors              []string // of its status
	login               func(context.Context) error
	snapshot            func(pb.Maintenance_SnapshotServer) error
	version             string // "" is 3.7.3
	learner             bool
	applied             uint64
	revision            int64 // 0 is 7
	hash                uint32
	inUse               int64 // bytes of the database
	size, quota         int64 // bytes of its file, and of what it may have; 0: it does not report a quota
}

func (f *fakeMember) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: f.clusterID, MemberId: f.memberID, Revision: cmp.Or(f.revision, 7)}
}

func (f *fakeMember) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{
		Header: f.header(), Version: cmp.Or(f.version, "3.7.3"), Leader: f.memberID, Errors: f.errors, IsLearner: f.learner,
		RaftAppliedIndex: f.applied, RaftIndex: f.applied, DbSizeInUse: f.inUse, DbSize: f.size, DbSizeQuota: f.quota,
	}, nil
}

func (f *fakeMember) Alarm(context.Context, *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	return &pb.AlarmResponse{Header: f.header()}, nil
}

func (f *fakeMember) AuthStatus(context.Context, *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	return &pb.AuthStatusResponse{Header: f.header()}, nil
}

func (f *fakeMember) HashKV(context.Context, *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	return &pb.HashKVResponse{Header: f.header(), Hash: f.hash, CompactRevision: 3}, nil
}

func (f *fakeMember) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	if f.noMembers {
		return nil, status.Error(codes.Internal, "no list today")
	}
	return &pb.MemberListResponse{Header: f.header(), Members: f.members}, nil
}

func (f *fakeMember) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: f.header()}, f.refusal
}

func (f *fakeMember) Authenticate(ctx context.Context, _ *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	return nil, f.login(ctx)
}

func (f *fakeMember) Snapshot(_ *pb.SnapshotRequest, stream pb.Maintenance_SnapshotServer) error {
	if f.snapshot == nil {
		return stream.Send(&pb.SnapshotResponse{Blob: []byte("content")})
	}
	return f.snapshot(stream)
}

// serve returns the host and port at which the fake listens until the test ends.
func (f *fakeMember) serve(t *testing.T, options ...grpc.ServerOption) string {
	t.Helper()
	return f.serveAt(t, listen(t), options...)
}

func (f *fakeMember) serveAt(t *testing.T, listener net.Listener, options ...grpc.ServerOption) string {
	t.Helper()
	server := grpc.NewServer(options...)
	pb.RegisterMaintenanceServer(server, f)
	pb.RegisterClusterServer(server, f)
	pb.RegisterKVServer(server, f)
	pb.RegisterAuthServer(server, f)
	go server.Serve(listener) // its error is Stop's
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func tlsOption(t *testing.T, certFile, keyFile string) grpc.ServerOption {
	t.Helper()
	creds, err := credentials.NewServerTLSFromFile(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	return grpc.Creds(creds)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

// greetsOnce returns the address of a TLS server that makes one handshake and then accepts connections without
// answering.
func greetsOnce(t *testing.T, certificate tls.Certificate) (address string) {
	t.Helper()
	listener := listen(t)
	var greeted atomic.Bool
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(t.Context(), func() { conn.Close() })
			if greeted.CompareAndSwap(false, true) {
				_ = tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}}).Handshake()
				conn.Close()
			}
		}
	}()
	return listener.Addr().String()
}

// silent never answers, and counts the connections.
func silent(t *testing.T) (address string, visits func() int) {
	t.Helper()
	listener := listen(t)
	come := make(chan net.Conn, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			come <- conn
		}
	}()
	t.Cleanup(func() {
		for range len(come) {
			(<-come).Close()
		}
	})
	return listener.Addr().String(), func() int { return len(come) }
}

// database returns the data that a server sends for a database of size bytes: content and digest. A multiple of 512 is
// a possible size.
func database(size int) []byte {
	random := rand.NewChaCha8([32]byte{byte(size)})
	content := make([]byte, size)
	random.Read(content) // never fails
	digest := sha256.Sum256(content)
	return append(content, digest[:]...)
}

// sendInPieces sends data in messages of at most size bytes.
func sendInPieces(stream pb.Maintenance_SnapshotServer, data []byte, size int) error {
	for len(data) > 0 {
		n := min(size, len(data))
		remaining := max(len(data)-n-sha256.Size, 0)
		err := stream.Send(&pb.SnapshotResponse{Blob: data[:n], RemainingBytes: uint64(remaining)})
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
