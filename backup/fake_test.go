package backup_test

import (
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// fakeMember is a server with answers that a real one never gives. The zero value with ids is a healthy leader of a
// small database.
type fakeMember struct {
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedClusterServer
	pb.UnimplementedKVServer
	pb.UnimplementedAuthServer

	clusterID, memberID uint64
	members             []*pb.Member
	database            []byte                                    // with its digest; nil: small
	snapshot            func(pb.Maintenance_SnapshotServer) error // in place of sending the database
	inUse               int64                                     // bytes of the database that it reports
	cutOff              bool                                      // linearizable reads fail
	status              func(call int64) error                    // of the nth Status
	hashKV              func(call int64) (*pb.HashKVResponse, error)

	statuses, hashes, open atomic.Int64 // calls so far, and open streams
}

func (f *fakeMember) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: f.clusterID, MemberId: f.memberID, Revision: 7, RaftTerm: 3}
}

func (f *fakeMember) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	call := f.statuses.Add(1)
	if f.status != nil {
		err := f.status(call)
		if err != nil {
			return nil, err
		}
	}
	return &pb.StatusResponse{
		Header: f.header(), Version: "3.7.3", Leader: 1, RaftTerm: 3, RaftAppliedIndex: 11, DbSizeInUse: f.inUse,
	}, nil
}

func (f *fakeMember) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	return &pb.MemberListResponse{Header: f.header(), Members: f.members}, nil
}

func (f *fakeMember) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if f.cutOff && !r.Serializable {
		return nil, status.Error(codes.Unavailable, "etcdserver: request timed out")
	}
	return &pb.RangeResponse{Header: f.header()}, nil
}

func (f *fakeMember) AuthStatus(context.Context, *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	return &pb.AuthStatusResponse{Header: f.header()}, nil
}

func (f *fakeMember) Alarm(context.Context, *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	return &pb.AlarmResponse{Header: f.header()}, nil
}

func (f *fakeMember) HashKV(context.Context, *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	call := f.hashes.Add(1)
	if f.hashKV != nil {
		return f.hashKV(call)
	}
	return &pb.HashKVResponse{Header: f.header(), Hash: 0xabcd, CompactRevision: 3}, nil
}

func (f *fakeMember) Snapshot(_ *pb.SnapshotRequest, stream pb.Maintenance_SnapshotServer) error {
	f.open.Add(1)
	defer f.open.Add(-1)
	if f.snapshot != nil {
		return f.snapshot(stream)
	}
	if f.database == nil {
		return send(stream, database(4096))
	}
	return send(stream, f.database)
}

// serve returns the client URL at which the fake listens until the test ends.
func (f *fakeMember) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterMaintenanceServer(server, f)
	pb.RegisterClusterServer(server, f)
	pb.RegisterKVServer(server, f)
	pb.RegisterAuthServer(server, f)
	var served sync.WaitGroup
	served.Go(func() { server.Serve(listener) }) // its error is Stop's
	t.Cleanup(func() {
		server.Stop()
		served.Wait()
	})
	return "http://" + listener.Addr().String()
}

// database returns the data that a server sends for a database of size bytes: content and digest. A multiple of 512 is
// a possible size. The content does not compress.
func database(size int) []byte {
	random := rand.NewChaCha8([32]byte{1})
	content := make([]byte, size)
	random.Read(content) // never fails
	digest := sha256.Sum256(content)
	return append(content, digest[:]...)
}

func send(stream pb.Maintenance_SnapshotServer, data []byte) error {
	for len(data) > 0 {
		n := min(32<<10, len(data))
		remaining := max(len(data)-n-sha256.Size, 0)
		err := stream.Send(&pb.SnapshotResponse{Blob: data[:n], RemainingBytes: uint64(remaining)})
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
