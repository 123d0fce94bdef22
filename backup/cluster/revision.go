package cluster

import (
	"context"
	"crypto/tls"
	"net/url"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// NewestRevision returns the newest revision that a server at one of the client URLs reports to a client without
// credentials, or 0 if none does. It queries all URLs at once and verifies no certificate, because it sends no secret.
func NewestRevision(ctx context.Context, urls []string) int64 {
	ctx, cancel := context.WithTimeout(ctx, knockTimeout)
	defer cancel()
	revisions := make([]int64, len(urls)+1) // the last one stays 0, for slices.Max without URLs
	var wg sync.WaitGroup
	for i, u := range urls {
		wg.Go(func() { revisions[i] = revisionAt(ctx, u) })
	}
	wg.Wait()
	return slices.Max(revisions)
}

// revisionAt returns the server's revision, or 0 if the server does not report it.
func revisionAt(ctx context.Context, text string) int64 {
	u, err := url.Parse(text)
	if err != nil {
		return 0
	}
	security := insecure.NewCredentials()
	switch u.Scheme {
	case "https":
		security = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	case "http":
	default:
		return 0
	}
	conn, err := grpc.NewClient("passthrough:///"+u.Host, grpc.WithTransportCredentials(security), grpc.WithNoProxy())
	if err != nil {
		return 0
	}
	defer conn.Close()
	status, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return 0
	}
	return status.Header.GetRevision()
}
