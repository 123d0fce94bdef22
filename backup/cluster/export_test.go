package cluster

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/srv"
)

// ServerOf returns a server without a network, so that it can run in virtual time: remote answers its calls.
func ServerOf(remote pb.MaintenanceClient) *Server {
	return &Server{Endpoint: "http://127.0.0.1:2379", remote: remote}
}

// SetLookup replaces DNS until undo is called.
func SetLookup(dns func(service, domain, name string) (*srv.SRVClients, error)) (undo func()) {
	real := lookup
	lookup = dns
	return func() { lookup = real }
}

// DecodePiece decodes a message of a snapshot's stream as Server.Snapshot does.
var DecodePiece = decodePiece

// Check returns an error if a database with so many bytes in use exceeds l.
func (l HashLimit) Check(inUse int64) error { return l.check(inUse) }
