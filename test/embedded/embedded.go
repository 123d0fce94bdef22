// Package embedded runs etcd servers inside the test's own process: they need no tools, and start in a moment. Only
// etcd 3.7 can run this way; for the other versions there is test/servers.
package embedded

import (
	"net/url"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/etcd-dr/etcd-dr/test/servers"
)

// Server is one member, which is a cluster of its own.
type Server struct {
	*embed.Etcd
	URL     string // of its clients' port
	DataDir string
	config  *embed.Config
	once    sync.Once
}

// Start starts a server in a directory of the test and waits until it serves; change may be nil. It is closed when the
// test ends.
func Start(t testing.TB, change func(*embed.Config)) *Server {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.Name = "m1"
	Listen(t, cfg, servers.FreeURLs(t, 2))
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = 20, 200 // an election then takes less than a second
	cfg.BcryptCost = 4                   // and a login less than a tenth of one
	if change != nil {
		change(cfg)
	}
	s := &Server{URL: cfg.ListenClientUrls[0].String(), DataDir: cfg.Dir, config: cfg}
	s.start(t)
	return s
}

// Listen sets the URLs of a server: the first one is for its clients, the second for its peers.
func Listen(t testing.TB, cfg *embed.Config, texts []string) {
	t.Helper()
	var urls []url.URL
	for _, text := range texts {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, *u)
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = urls[:1], urls[:1]
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = urls[1:], urls[1:]
}

const readyTimeout = 30 * time.Second

func (s *Server) start(t testing.TB) {
	t.Helper()
	etcd, err := embed.StartEtcd(s.config)
	if err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	s.Etcd = etcd
	t.Cleanup(s.Close)
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(readyTimeout):
		t.Fatalf("etcd is not ready after %v", readyTimeout)
	}
}

// Close ends the server, if it still runs.
func (s *Server) Close() { s.once.Do(s.Etcd.Close) }

// Restart ends the server, if it still runs, and starts it again on its data, with its files as they are now.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Close()
	s.once = sync.Once{}
	s.start(t)
}

// Client connects to the server. It is closed when the test ends.
func (s *Server) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.URL}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
