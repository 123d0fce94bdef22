package backup_test

import (
	"net/url"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// embedded is a server of this process that may be closed before its test ends, too.
type embedded struct {
	*embed.Etcd
	url  string
	once sync.Once
}

func (e *embedded) Close() { e.once.Do(e.Etcd.Close) }

// startEtcd runs a real server of this very process on loopback. change may be nil.
func startEtcd(t *testing.T, change func(*embed.Config)) *embedded {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.Name = "m1"
	urls := parsedURLs(t, servers.FreeURLs(t, 2))
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = urls[:1], urls[:1]
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = urls[1:], urls[1:]
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = 20, 200 // an election then costs no second
	cfg.BcryptCost = 4                   // nor a login a tenth of one
	if change != nil {
		change(cfg)
	}
	started, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	etcd := &embedded{Etcd: started, url: cfg.ListenClientUrls[0].String()}
	t.Cleanup(etcd.Close)
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		t.Fatal("etcd is not ready after 30 s")
	}
	return etcd
}

func parsedURLs(t *testing.T, texts []string) []url.URL {
	t.Helper()
	parsed := make([]url.URL, len(texts))
	for i, text := range texts {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		parsed[i] = *u
	}
	return parsed
}

// clientOf reaches a server in the tests' own way, not in that of the code under test.
func clientOf(t *testing.T, e *embedded) *clientv3.Client {
	t.Helper()
	cfg := clientv3.Config{Endpoints: []string{e.url}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()}
	client, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func put(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	if _, err := client.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

// at is a configuration with short timeouts.
func at(endpoints ...string) cluster.Config {
	return cluster.Config{Endpoints: endpoints, DialTimeout: 2 * time.Second, CommandTimeout: 5 * time.Second}
}
