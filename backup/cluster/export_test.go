package cluster

import pb "go.etcd.io/etcd/api/v3/etcdserverpb"

// ServerOf is a server without a network, so that it can run in virtual time: remote answers its calls.
func ServerOf(remote pb.MaintenanceClient) *Server {
	return &Server{Endpoint: "http://127.0.0.1:2379", remote: remote}
}
