// Package scratch boots an etcd server on a restored data dir, on loopback, to be thrown away.
//
// It lifts the cluster version in that dir, so what is handed back to a manager is never booted here.
package scratch

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Member is the single member that a data dir must have been restored for, to be booted here.
const (
	Member  = "scratch"
	PeerURL = "http://127.0.0.1:2380" // its identity; it listens elsewhere
)

// Server is a running scratch server.
type Server struct {
	etcd *embed.Etcd
}

// ErrLate: the server did not serve in time. A slow machine is no fault of the data.
var ErrLate = errors.New("it did not serve in time")

// bootTimeout is until the server serves: it elects itself within a second or so, and a large database takes its time
// to load.
const bootTimeout = 5 * time.Minute

// Boot starts a server on dataDir and waits until it serves. Close it in any case.
func Boot(ctx context.Context, dataDir string) (*Server, error) {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = Member, dataDir
	peer, err := url.Parse(PeerURL)
	if err != nil {
		return nil, err
	}
	anyPort := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg.AdvertisePeerUrls = []url.URL{*peer}
	cfg.ListenPeerUrls, cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{anyPort}, []url.URL{anyPort}, []url.URL{anyPort}
	cfg.InitialCluster = cfg.InitialClusterFromName(Member)
	cfg.UnsafeNoFsync = true
	// Where etcd would log and end the process it panics instead: then at least stderr has its last words.
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop().WithOptions(zap.WithFatalHook(zapcore.WriteThenPanic)))
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start a scratch server: %w", err)
	}
	s := &Server{etcd}
	select {
	case <-etcd.Server.ReadyNotify():
		return s, nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(bootTimeout):
		err = ErrLate
	}
	etcd.Server.HardStop() // Close alone would wait for a server that never got ready
	s.Close()
	return nil, fmt.Errorf("start a scratch server: %w", err)
}

// Close stops the server.
func (s *Server) Close() { s.etcd.Close() }

// HashKV hashes the key space at revision. It goes past the API: users may be enabled, and their passwords unknown.
func (s *Server) HashKV(revision int64) (repository.HashKV, error) {
	hash, _, err := s.etcd.Server.KV().HashStorage().HashByRev(revision)
	if err != nil {
		return repository.HashKV{}, fmt.Errorf("hash the scratch server's key space: %w", err)
	}
	return repository.HashKV{Revision: revision, CompactRevision: hash.CompactRevision, Hash: hash.Hash}, nil
}

// Count is the key space's revision and the number of keys in it.
func (s *Server) Count(ctx context.Context) (revision, keys int64, err error) {
	return s.CountRange(ctx, []byte{0}, []byte{0})
}

// CountRange is the key space's revision and the number of keys from key on and before end, both as a client would say
// them: without an end it is that key alone, and an end of one zero byte is none.
func (s *Server) CountRange(ctx context.Context, key, end []byte) (revision, keys int64, err error) {
	if len(end) == 1 && end[0] == 0 {
		end = []byte{} // as etcd's own server tells its store
	}
	all, err := s.etcd.Server.KV().Range(ctx, key, end, mvcc.RangeOptions{CountOnly: true})
	if err != nil {
		return 0, 0, fmt.Errorf("count the scratch server's keys: %w", err)
	}
	return all.Rev, int64(all.Count), nil
}
