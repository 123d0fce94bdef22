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

// allKeys is where the key space begins and, as the end of a range, that it has no end.
var allKeys = []byte{0}

// Watch is one stream of etcd's, on a connection of its own: what is read there waits a moment.
type Watch struct {
	client *clientv3.Client
	stream pb.Watch_WatchClient
	waited bool // the last answer was waited for
}

// Watch asks for what changes in the whole key space from a revision on, until ctx ends. It is etcd's own stream and not
// its client's watcher: that one puts the fragments of an answer together, and of a member that has much to tell an answer
// may take 1.5 GB. The stream ends with an error when the member has no leader.
func (s *Server) Watch(ctx context.Context, from int64) (*Watch, error) {
	conf, err := s.config.client(s.Endpoint)
	if err != nil {
		return nil, err
	}
	plain := insecure.NewCredentials()
	if s.config.encrypts(s.Endpoint) {
		plain = credentials.NewTLS(conf.TLS)
	}
	conf.DialOptions, conf.Context = gathered(plain), ctx
	client, err := clientv3.New(conf)
	if err != nil {
		return nil, s.config.loginFailed(ctx, s.Endpoint, err)
	}
	w := &Watch{client: client}
	if w.stream, err = watch(ctx, client, from); err != nil {
		w.Close()
		return nil, fmt.Errorf("watch %s from revision %d on: %w", s.Endpoint, from, explain(err))
	}
	return w, nil
}

func watch(ctx context.Context, client *clientv3.Client, from int64) (pb.Watch_WatchClient, error) {
	stream, err := pb.NewWatchClient(client.ActiveConnection()).Watch(
		clientv3.WithRequireLeader(ctx), grpc.MaxCallRecvMsgSize(math.MaxInt32)) // as etcd's client: one value may be as large as the server lets it
	if err != nil {
		return nil, err
	}
	return stream, stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: allKeys, RangeEnd: allKeys, StartRevision: from, ProgressNotify: true, Fragment: true,
	}}})
}

// Recv waits for the next answer. Behind one that was waited for come those that were gathered with it: it lets all of them
// come in, or it would be woken for each.
func (w *Watch) Recv() (*pb.WatchResponse, error) {
	if w.waited {
		time.Sleep(settleTime)
	}
	asked := time.Now()
	answer, err := w.stream.Recv()
	w.waited = time.Since(asked) >= settleTime
	if err != nil {
		return nil, fmt.Errorf("the watch broke off: %w", explain(err))
	}
	return answer, nil
}

// Close ends the watch.
func (w *Watch) Close() { w.client.Close() }

// Revision is the key space's, as the leader confirms it: all that any client had been told was written before the call
// is in it. ErrCutOff: no leader answers.
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

// Holds says whether the member still has the key space as it was at a revision.
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

// LeaseTTL is how many seconds a lease was granted for. ok is false if there is no such lease any more.
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
