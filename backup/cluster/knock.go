package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/reach"
)

// Answer is the answer of a client URL to a client without credentials.
type Answer struct {
	URL       string
	Alive     bool
	ClusterID string           // in hex; "" if the server did not report it
	Members   []catalog.Member // of the server's cluster; nil without a ClusterID
	Revision  int64            // of the server's key space; 0 if the server did not report it
}

// knockTimeout bounds one try. Knock tries all URLs at once, each once or, if its server hangs, twice: see listens.
const knockTimeout = 2 * time.Second

// Knock checks whether servers answer at the client URLs of a cluster that should be dead. It sends no credentials: a
// server that demands a certificate or a user counts as alive. A server outside allowed counts as dead.
func Knock(ctx context.Context, urls []string, allowed reach.Reach) []Answer {
	k := knocker{net.Dialer{Control: allowed.Control}}
	answers := make([]Answer, len(urls))
	var wg sync.WaitGroup
	for i, u := range urls {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, knockTimeout)
			defer cancel()
			answers[i] = k.probe(ctx, u)
		})
	}
	wg.Wait()
	return answers
}

// knocker dials the servers.
type knocker struct{ dialer net.Dialer }

func (k knocker) probe(ctx context.Context, text string) Answer {
	answer := Answer{URL: text}
	u, err := url.Parse(text)
	if err != nil {
		return answer
	}
	switch u.Scheme {
	case "https":
		answer.Alive = k.speaksTLS(ctx, u.Host)
	case "http":
		k.queryEtcd(ctx, u.Host, &answer)
	}
	return answer
}

// speaksTLS reports whether a TLS server answers or hangs. It does not verify the certificate, because a server with an
// expired one counts as alive too, and it sends no request.
func (k knocker) speaksTLS(ctx context.Context, host string) bool {
	conn, err := k.dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return false
	}
	defer conn.Close()
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
	alert, _ := errors.AsType[*net.OpError](err) // crypto/tls wraps an alert from the other side in an OpError
	return err == nil || ctx.Err() != nil || alert != nil && alert.Op == "remote error"
}

// queryEtcd sets the fields of a from an etcd server's answers. A process that accepts the connection and hangs, such
// as a stopped one, counts as alive.
func (k knocker) queryEtcd(ctx context.Context, host string, a *Answer) {
	// With a dialer of our own, gRPC uses no proxy: a proxy that cannot reach a live cluster would make it look dead.
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return k.dialer.DialContext(ctx, "tcp", address)
	}
	conn, err := grpc.NewClient("passthrough:///"+host, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
	if err != nil {
		return
	}
	defer conn.Close()
	list, err := pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{})
	switch status.Code(err) {
	case codes.OK:
		a.Alive, a.ClusterID, a.Members = true, fmt.Sprintf("%x", list.Header.ClusterId), membersOf(list.Members)
	case codes.Unavailable:
		return
	case codes.DeadlineExceeded:
		a.Alive = k.listens(host)
		return
	default: // it refuses, so it is alive
		a.Alive = true
	}
	answer, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
	if err == nil {
		a.Revision = answer.Header.Revision
	}
}

// listens reports whether a server accepts connections. It has its own time limit: that of the request is over.
func (k knocker) listens(host string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), knockTimeout)
	defer cancel()
	conn, err := k.dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
