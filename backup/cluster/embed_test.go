package cluster_test

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/test/embedded"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// startEtcd starts a real server in this process on loopback, and returns its client URL. change may be nil.
func startEtcd(t *testing.T, change func(*embed.Config)) (string, *embedded.Server) {
	t.Helper()
	s := embedded.Start(t, change)
	return s.URL, s
}

// overTLS makes the server's clients use TLS and present a certificate of the same authority.
func overTLS(t *testing.T, files *servers.Certificates) func(*embed.Config) {
	return func(cfg *embed.Config) {
		embedded.Listen(t, cfg, append(servers.FreeTLSURLs(t, 1), servers.FreeURLs(t, 1)...))
		cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
		cfg.ClientTLSInfo.CertFile, cfg.ClientTLSInfo.KeyFile = files.ServerCert, files.ServerKey
		cfg.ClientTLSInfo.TrustedCAFile, cfg.ClientTLSInfo.ClientCertAuth = files.CA, true
	}
}

// clientOf returns an etcd client that does not use the code under test.
func clientOf(t *testing.T, url string, change func(*clientv3.Config)) *clientv3.Client {
	t.Helper()
	cfg := clientv3.Config{Endpoints: []string{url}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()}
	if change != nil {
		change(&cfg)
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

const rootPassword = "s3cret-root"

// enableUsers creates root with all rights, and alice, who may read and write below /app/.
func enableUsers(t *testing.T, client *clientv3.Client) {
	t.Helper()
	ctx := t.Context()
	for _, step := range []func() error{
		func() error { _, err := client.UserAdd(ctx, "root", rootPassword); return err },
		func() error { _, err := client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := client.UserAdd(ctx, "alice", rootPassword); return err },
		func() error { _, err := client.RoleAdd(ctx, "app"); return err },
		func() error {
			mayAll := clientv3.PermissionType(clientv3.PermReadWrite)
			_, err := client.RoleGrantPermission(ctx, "app", "/app/", "/app0", mayAll)
			return err
		},
		func() error { _, err := client.UserGrantRole(ctx, "alice", "app"); return err },
		func() error { _, err := client.AuthEnable(ctx); return err },
	} {
		err := step()
		if err != nil && !strings.Contains(err.Error(), "role name already exists") {
			t.Fatalf("enable users: %v", err)
		}
	}
}

// at returns a configuration whose timeouts a machine that stops for a moment does not reach.
func at(endpoints ...string) cluster.Config {
	return cluster.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second, CommandTimeout: 20 * time.Second}
}

func connect(t *testing.T, cfg cluster.Config) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// refused returns the error of a Connect that must fail.
func refused(t *testing.T, ctx context.Context, cfg cluster.Config) error {
	t.Helper()
	c, err := cluster.Connect(ctx, cfg)
	if err == nil {
		c.Close()
		t.Fatal("Connect succeeds")
	}
	if cfg.Password != "" && strings.Contains(err.Error(), cfg.Password) {
		t.Errorf("the error holds the password: %v", err)
	}
	return err
}

// wantWords fails unless err contains all words.
func wantWords(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
}
