// Package scratch boots a temporary etcd server on a restored data dir.
//
// The server listens on a socket in a directory that only this user may enter, and on no port, because it has every Secret.
//
// The server raises the cluster version in the data dir, so a data dir that an operator will use must never be booted here.
package scratch

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Member and PeerURL identify the single member for which a data dir must have been restored to be booted here.
const (
	Member  = "scratch"
	PeerURL = "http://127.0.0.1:2380" // part of the member's identity; the server does not listen on it
)

const (
	// clients is the directory of the socket, in the data dir.
	clients = "clients"
	// longestSocket is the maximum length of a socket's path: the kernel stores it in 108 bytes, including the final zero. (unix(7))
	longestSocket = 107
)

// Server is a running scratch server.
type Server struct {
	// Endpoint is the server's endpoint for clients of this user, as for etcdctl's --endpoints.
	Endpoint string

	etcd *embed.Etcd
	dir  string // contains the socket; Close removes it
}

// ErrLate reports that the server was not ready in time. The machine may be slow, so it is not a finding about the data.
var ErrLate = fault.New(fault.Unreachable, "it did not serve in time")

// bootTimeout bounds the time until the server is ready: an election takes about a second, and a large database is slow to
// load.
const bootTimeout = 5 * time.Minute

// Boot starts a server on dataDir and waits until it is ready. The caller must close it. The error matches ErrLate after five
// minutes, or is the cause of ctx's end.
func Boot(ctx context.Context, dataDir string) (*Server, error) {
	cfg, dir, err := configure(dataDir)
	if err != nil {
		return nil, fmt.Errorf("start a scratch server: %w", err)
	}
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start a scratch server: %w", errors.Join(err, os.RemoveAll(dir)))
	}
	s := &Server{etcd: etcd, dir: dir, Endpoint: cfg.ListenClientUrls[0].String()}
	select {
	case <-etcd.Server.ReadyNotify():
		err = s.awaitHealth(ctx)
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(bootTimeout):
		err = ErrLate
	}
	if err == nil {
		return s, nil
	}
	etcd.Server.HardStop() // Close alone would wait for a server that never became ready
	s.Close()
	return nil, fmt.Errorf("start a scratch server: %w", err)
}

// configure returns the server's configuration, and creates the directory of the socket.
func configure(dataDir string) (cfg *embed.Config, dir string, err error) {
	cfg = embed.NewConfig()
	cfg.Name, cfg.Dir = Member, dataDir
	peer, err := url.Parse(PeerURL)
	if err != nil {
		return nil, "", err
	}
	dir, err = socketDir(dataDir)
	if err != nil {
		return nil, "", err
	}
	socket := url.URL{Scheme: "unix", Path: filepath.Join(dir, "socket")}
	cfg.AdvertisePeerUrls, cfg.ListenPeerUrls = []url.URL{*peer}, nil
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
	cfg.EnableGRPCGateway = false
	cfg.InitialCluster = cfg.InitialClusterFromName(Member)
	cfg.UnsafeNoFsync = true
	// Fatal errors of etcd panic instead of exiting, so that stderr contains the message.
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop().WithOptions(zap.WithFatalHook(zapcore.WriteThenPanic)))
	return cfg, dir, nil
}

// socketDir creates a directory that only this user may enter: in the data dir, with which it is removed, or in the system's
// temporary directory if that path would be too long.
func socketDir(dataDir string) (string, error) {
	dir, err := filepath.Abs(filepath.Join(dataDir, clients))
	if err != nil {
		return "", err
	}
	if len(filepath.Join(dir, "socket")) > longestSocket {
		return os.MkdirTemp("", "dr-scratch-*")
	}
	err = os.RemoveAll(dir) // of a server that was killed
	if err == nil {
		err = os.MkdirAll(dataDir, 0o700)
	}
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	return dir, err
}

// awaitHealth waits until the server responds to a client that asks for its health. That request needs no password even if
// authentication is enabled.
func (s *Server) awaitHealth(ctx context.Context) error {
	conn, err := grpc.NewClient(s.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, ErrLate)
	defer cancel()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Close stops the server.
func (s *Server) Close() {
	s.etcd.Close()
	_ = os.RemoveAll(s.dir) // the data dir's removal removes the rest
}

// HashKV returns the hash of the key space at revision. It does not use the API, which may need a password that dr does not
// know.
func (s *Server) HashKV(revision int64) (catalog.HashKV, error) {
	hash, _, err := s.etcd.Server.KV().HashStorage().HashByRev(revision)
	if err != nil {
		return catalog.HashKV{}, fmt.Errorf("hash the scratch server's key space: %w", err)
	}
	return catalog.HashKV{Revision: revision, CompactRevision: hash.CompactRevision, Hash: hash.Hash}, nil
}

// Count returns the key space's revision and its number of keys.
func (s *Server) Count(ctx context.Context) (revision, keys int64, err error) {
	return s.CountRange(ctx, []byte{0}, []byte{0})
}

// CountAt returns the number of keys at revision, which must not be compacted.
func (s *Server) CountAt(ctx context.Context, revision int64) (keys int64, err error) {
	all, err := s.etcd.Server.KV().Range(ctx, []byte{0}, []byte{}, mvcc.RangeOptions{CountOnly: true, Rev: revision})
	if err != nil {
		return 0, fmt.Errorf("count the scratch server's keys at revision %d: %w", revision, err)
	}
	return int64(all.Count), nil
}

// CountRange returns the key space's revision and the number of keys from key up to, but excluding, end, as in etcd's API: an empty
// end selects only key, and an end of one zero byte has no upper bound.
func (s *Server) CountRange(ctx context.Context, key, end []byte) (revision, keys int64, err error) {
	if len(end) == 1 && end[0] == 0 {
		end = []byte{} // as etcd's server passes it to its store
	}
	all, err := s.etcd.Server.KV().Range(ctx, key, end, mvcc.RangeOptions{CountOnly: true})
	if err != nil {
		return 0, 0, fmt.Errorf("count the scratch server's keys: %w", err)
	}
	return all.Rev, int64(all.Count), nil
}
