package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// allKeys is the start of the key space and, as the end of a range, means no end.
var allKeys = []byte{0}

// Watch is one watch stream on a connection of its own, which collects packets (see gathering).
type Watch struct {
	client *clientv3.Client
	stream pb.Watch_WatchClient
	waited bool // Recv had to wait for the last answer
}

// Watch requests all changes of the key space from a revision on, until ctx ends. It uses etcd's stream without its
// client's watcher, which joins the fragments of an answer: a large answer may need 1.5 GB of memory there. The stream
// ends with an error when the member has no leader.
func (s *Server) Watch(ctx context.Context, from int64) (*Watch, error) {
	conf, err := s.config.client(s.Endpoint)
	if err != nil {
		return nil, err
	}
	plain := insecure.NewCredentials()
	if s.config.encrypts(s.Endpoint) {
		plain = credentials.NewTLS(conf.TLS)
	}
	conf.DialOptions, conf.Context = append(conf.DialOptions, gathered(plain)...), ctx
	client, err := clientv3.New(conf)
	if err != nil {
		return nil, s.config.loginFailed(ctx, s.Endpoint, err)
	}
	w := &Watch{client: client}
	w.stream, err = watch(ctx, client, from)
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("watch %s from revision %d on: %w", s.Endpoint, from, explain(err))
	}
	return w, nil
}

func watch(ctx context.Context, client *clientv3.Client, from int64) (pb.Watch_WatchClient, error) {
	stream, err := pb.NewWatchClient(client.ActiveConnection()).Watch(
		clientv3.WithRequireLeader(ctx), grpc.MaxCallRecvMsgSize(math.MaxInt32)) // as in etcd's client: a value may be as large as the server allows
	if err != nil {
		return nil, err
	}
	return stream, stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: allKeys, RangeEnd: allKeys, StartRevision: from, ProgressNotify: true, Fragment: true,
	}}})
}

// Recv returns the next answer. If it had to wait for the previous answer, it first pauses until the rest of the
// data that the connection collected has arrived, so that the goroutine does not wake up for each part.
func (w *Watch) Recv() (*pb.WatchResponse, error) {
	if w.waited {
		time.Sleep(passTime)
	}
	asked := time.Now()
	answer, err := w.stream.Recv()
	w.waited = time.Since(asked) >= passTime
	if err != nil {
		return nil, fmt.Errorf("the watch ended: %w", explain(err))
	}
	return answer, nil
}

// Close ends the watch.
func (w *Watch) Close() { w.client.Close() }

// Revision returns the key space's revision, confirmed by the leader: it includes every write that was acknowledged to
// a client before the call. Without a leader the error matches ErrCutOff.
func (s *Server) Revision(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	answer, err := s.client.Get(ctx, string(allKeys), clientv3.WithCountOnly())
	if errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty) {
		return 0, fmt.Errorf("ask %s for its revision: %w", s.Endpoint, explain(err))
	}
	if err != nil {
		return 0, fmt.Errorf("%w: no leader confirms a read through %s: %w", ErrCutOff, s.Endpoint, reason(ctx, err))
	}
	return answer.Header.Revision, nil
}

// Holds reports whether the member still has the key space as it was at a revision.
func (s *Server) Holds(ctx context.Context, revision int64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := s.client.Get(ctx, string(allKeys), clientv3.WithCountOnly(), clientv3.WithSerializable(), clientv3.WithRev(revision))
	if errors.Is(err, rpctypes.ErrCompacted) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask %s for revision %d: %w", s.Endpoint, revision, reason(ctx, err))
	}
	return true, nil
}

// LeaseTTL returns the TTL in seconds for which a lease was granted. ok is false if the lease no longer exists.
func (s *Server) LeaseTTL(ctx context.Context, id int64) (seconds int64, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	answer, err := s.client.TimeToLive(ctx, clientv3.LeaseID(id))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("ask %s for lease %x: %w", s.Endpoint, id, reason(ctx, err))
	}
	return answer.GrantedTTL, answer.GrantedTTL > 0, nil
}
