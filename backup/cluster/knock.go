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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Answer is what a client URL gave to somebody without credentials.
type Answer struct {
	URL       string
	Alive     bool
	ClusterID string // in hex; "" if it did not say
}

// knockTimeout is for one URL; all are asked at once.
const knockTimeout = 2 * time.Second

// Knock asks client URLs, without credentials, whether anybody is there. It is for URLs of a cluster that ought to be
// dead: a server that demands a certificate, or users, counts as alive.
func Knock(ctx context.Context, urls []string) []Answer {
	answers := make([]Answer, len(urls))
	var wg sync.WaitGroup
	for i, u := range urls {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, knockTimeout)
			defer cancel()
			answers[i] = knock(ctx, u)
		})
	}
	wg.Wait()
	return answers
}

func knock(ctx context.Context, text string) Answer {
	answer := Answer{URL: text}
	u, err := url.Parse(text)
	if err != nil {
		return answer
	}
	switch u.Scheme {
	case "https":
		answer.Alive = speaksTLS(ctx, u.Host)
	case "http":
		answer.Alive, answer.ClusterID = speaksEtcd(ctx, u.Host)
	}
	return answer
}

// speaksTLS reports whether a TLS server answers, or hangs. Who it is does not matter here and nothing is told to it,
// so its certificate is not verified: one that has run out must count as alive too.
func speaksTLS(ctx context.Context, host string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return false
	}
	defer conn.Close()
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
	alert, _ := errors.AsType[*net.OpError](err) // crypto/tls wraps the other side's alert so
	return err == nil || ctx.Err() != nil || alert != nil && alert.Op == "remote error"
}

// speaksEtcd reports whether an etcd server answers, or something that takes the connection and hangs, as a stopped
// process does.
func speaksEtcd(ctx context.Context, host string) (alive bool, clusterID string) {
	// No proxy: one that cannot reach a living cluster would make it look dead.
	conn, err := grpc.NewClient(
		"passthrough:///"+host, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return false, ""
	}
	defer conn.Close()
	members, err := pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{})
	if err == nil {
		return true, fmt.Sprintf("%x", members.Header.ClusterId)
	}
	if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
		return code == codes.DeadlineExceeded && listens(host), ""
	}
	return true, "" // it refuses, so it lives
}

func listens(host string) bool {
	conn, err := net.DialTimeout("tcp", host, knockTimeout)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
