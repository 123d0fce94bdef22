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
)

// Answer is the answer of a client URL to a client without credentials.
type Answer struct {
	URL       string
	Alive     bool
	ClusterID string           // in hex; "" if the server did not report it
	Members   []catalog.Member // of the server's cluster; nil without a ClusterID
	Revision  int64            // of the server's key space; 0 if the server did not report it
}

// knockTimeout is for one URL; all are tried at once.
const knockTimeout = 2 * time.Second

// Knock checks whether servers answer at the client URLs of a cluster that should be dead. It sends no credentials: a
// server that demands a certificate or a user counts as alive.
func Knock(ctx context.Context, urls []string) []Answer {
	answers := make([]Answer, len(urls))
	var wg sync.WaitGroup
	for i, u := range urls {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, knockTimeout)
			defer cancel()
			answers[i] = probe(ctx, u)
		})
	}
	wg.Wait()
	return answers
}

func probe(ctx context.Context, text string) Answer {
	answer := Answer{URL: text}
	u, err := url.Parse(text)
	if err != nil {
		return answer
	}
	switch u.Scheme {
	case "https":
		answer.Alive = speaksTLS(ctx, u.Host)
	case "http":
		answer.queryEtcd(ctx, u.Host)
	}
	return answer
}

// speaksTLS reports whether a TLS server answers or hangs. It does not verify the certificate, because a server with an
// expired one counts as alive too, and it sends nothing.
func speaksTLS(ctx context.Context, host string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
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
func (a *Answer) queryEtcd(ctx context.Context, host string) {
	// No proxy: a proxy that cannot reach a live cluster would make the cluster look dead.
	conn, err := grpc.NewClient(
		"passthrough:///"+host, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
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
		a.Alive = listens(host)
		return
	default: // it refuses, so it is alive
		a.Alive = true
	}
	answer, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
	if err == nil {
		a.Revision = answer.Header.Revision
	}
}

func listens(host string) bool {
	conn, err := net.DialTimeout("tcp", host, knockTimeout)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
