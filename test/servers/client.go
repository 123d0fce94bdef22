package servers

import (
	"context"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// User is the name of a user who may read and write below UserPrefix and nothing else. Root has all rights.
const (
	User       = "alice"
	UserPrefix = "/app/"

	root         = "root"
	rootPassword = "root-secret"
	userPassword = "alice-secret"
)

// A ClientOption changes how a client connects.
type ClientOption func(*clientv3.Config)

// At connects a client to one member alone.
func At(m *Member) ClientOption {
	return func(config *clientv3.Config) { config.Endpoints = []string{m.ClientURL} }
}

// As logs a client in as another user than root; an empty name does not log in.
func As(name, password string) ClientOption {
	return func(config *clientv3.Config) { config.Username, config.Password = name, password }
}

// Client connects to all members, logged in as root if the cluster has authentication. It is closed when the test ends.
func (c *Cluster) Client(t testing.TB, options ...ClientOption) *clientv3.Client {
	t.Helper()
	client, err := c.TryClient(t, options...)
	if err != nil {
		t.Fatalf("connect to etcd %s: %v", c.Version, err)
	}
	return client
}

// TryClient is Client for a login that the members may refuse.
func (c *Cluster) TryClient(t testing.TB, options ...ClientOption) (*clientv3.Client, error) {
	t.Helper()
	config := clientv3.Config{
		Endpoints:   c.Endpoints(),
		DialTimeout: 10 * time.Second,
		Logger:      zap.NewNop(),
	}
	if c.options.TLS {
		config.TLS = c.Certificates.Config(t)
	}
	if c.RootPassword != "" {
		config.Username, config.Password = root, c.RootPassword
	}
	for _, change := range options {
		change(&config)
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = client.Close() })
	return client, nil
}

// enableAuth creates root and User, and turns authentication on.
func (c *Cluster) enableAuth(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	client := c.Client(t, As("", ""))
	steps := []func() error{
		func() error { _, err := client.UserAdd(ctx, root, c.RootPassword); return err },
		func() error { _, err := client.RoleAdd(ctx, root); return err },
		func() error { _, err := client.UserGrantRole(ctx, root, root); return err },
		func() error { _, err := client.UserAdd(ctx, User, c.UserPassword); return err },
		func() error { _, err := client.RoleAdd(ctx, "app"); return err },
		func() error {
			all := clientv3.GetPrefixRangeEnd(UserPrefix)
			_, err := client.RoleGrantPermission(ctx, "app", UserPrefix, all, clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := client.UserGrantRole(ctx, User, "app"); return err },
		func() error { _, err := client.AuthEnable(ctx); return err },
	}
	for _, step := range steps {
		err := step()
		if err != nil {
			t.Fatalf("turn on authentication: %v", err)
		}
	}
}
