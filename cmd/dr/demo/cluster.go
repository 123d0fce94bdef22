package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// members is the cluster, in the order of the members' names.
type members []*member

// member is one embedded etcd server. A restored member has the name and URLs of the old one, and another data dir.
type member struct {
	name      string
	peerURL   url.URL
	clientURL url.URL
	dataDir   string
	etcd      *embed.Etcd // nil: it does not run
}

func newMembers(dir string) (members, error) {
	urls, err := freeURLs(6) // two for each member
	if err != nil {
		return nil, err
	}
	var ms members
	for i, name := range []string{"m1", "m2", "m3"} {
		ms = append(ms, &member{name: name, peerURL: urls[2*i], clientURL: urls[2*i+1], dataDir: filepath.Join(dir, name)})
	}
	return ms, nil
}

// Ports lie below the kernel's range for outgoing connections, so that no connection occupies the port of a stopped member.
const (
	firstPort = 12000
	lastPort  = 31999
)

// freeURLs returns URLs with free ports. It keeps all listeners open until it has enough, so that all ports differ.
func freeURLs(n int) (urls []url.URL, err error) {
	for tries := 0; len(urls) < n; tries++ {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(lastPort-firstPort+1))
		listener, err := net.Listen("tcp", address)
		if err != nil && tries > 1000 {
			return nil, fmt.Errorf("find a free port on loopback: %w", err)
		}
		if err != nil {
			continue
		}
		defer listener.Close()
		urls = append(urls, url.URL{Scheme: "http", Host: address})
	}
	return urls, nil
}

// start starts all members and waits until they serve. state is the --initial-cluster-state of etcd: new or existing.
func (ms members) start(ctx context.Context, token, state string) error {
	for _, m := range ms {
		err := m.start(ms.initialCluster(), token, state)
		if err != nil {
			return fmt.Errorf("start %s: %w", m.name, err)
		}
	}
	for _, m := range ms {
		err := m.wait(ctx)
		if err != nil {
			return fmt.Errorf("start %s: %w", m.name, err)
		}
	}
	return nil
}

func (m *member) start(initialCluster, token, state string) (err error) {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = m.name, m.dataDir
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{m.peerURL}, []url.URL{m.peerURL}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{m.clientURL}, []url.URL{m.clientURL}
	cfg.InitialCluster, cfg.InitialClusterToken, cfg.ClusterState = initialCluster, token, state
	cfg.UnsafeNoFsync = true // the demo need not survive a crash of the host
	cfg.BcryptCost = 4       // the minimum: a random password needs no slow hash
	cfg.EnableGRPCGateway = false
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	m.etcd, err = embed.StartEtcd(cfg)
	return err
}

// bootTimeout bounds the start of a member; an election takes about a second.
const bootTimeout = time.Minute

func (m *member) wait(ctx context.Context) error {
	select {
	case <-m.etcd.Server.ReadyNotify():
		return nil
	case err := <-m.etcd.Err():
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(bootTimeout):
		return errors.New("it did not serve in time")
	}
}

// stop ends all members at once, as a power cut does, and waits for them.
func (ms members) stop() {
	var wg sync.WaitGroup
	for _, m := range ms {
		if m.etcd != nil {
			wg.Go(m.stop)
		}
	}
	wg.Wait()
}

// stop stops the server before it calls Close, which would wait forever for a server that never became ready.
func (m *member) stop() {
	m.etcd.Server.HardStop()
	m.etcd.Close()
	m.etcd = nil
}

// moveTo makes the folder in dir that has the member's name its data dir, for each member. It refuses a folder without a database: its
// member would start, get the data from the others, and look restored.
func (ms members) moveTo(dir string) error {
	for _, m := range ms {
		m.dataDir = filepath.Join(dir, m.name)
		_, err := os.Stat(filepath.Join(m.dataDir, "member", "snap", "db"))
		if err != nil {
			return fmt.Errorf("look for the data of %s: %w", m.name, err)
		}
	}
	return nil
}

func (ms members) initialCluster() string {
	var parts []string
	for _, m := range ms {
		parts = append(parts, m.name+"="+m.peerURL.String())
	}
	return strings.Join(parts, ",")
}

func (ms members) clientURLs() (urls []string) {
	for _, m := range ms {
		urls = append(urls, m.clientURL.String())
	}
	return urls
}

func (ms members) names() string {
	var names []string
	for _, m := range ms {
		names = append(names, m.name)
	}
	return strings.Join(names, ", ")
}

// answerTimeout bounds the connection and login to a member, and each request of a backup.
const answerTimeout = 20 * time.Second

// connect returns a client of one member. With user "" it does not log in.
func connect(ctx context.Context, m *member, user, password string) (*clientv3.Client, error) {
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{m.clientURL.String()}, Username: user, Password: password,
		DialTimeout: answerTimeout, Context: ctx, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("log in at %s as %q: %w", m.name, user, err)
	}
	return c, nil
}
