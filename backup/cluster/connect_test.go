package cluster_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/storage/reach"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

func TestConnect(t *testing.T) {
	t.Parallel()
	url, etcd := startEtcd(t, nil)
	dead := servers.FreeURLs(t, 2)
	id := uint64(etcd.Server.Cluster().ID())

	t.Run("one of three answers", func(t *testing.T) {
		c := connect(t, at(dead[0], url, dead[1]))
		wantServers(t, c, url)
		wantSilent(t, c, dead[0], "connection refused")
		wantSilent(t, c, dead[1], "connection refused")
		if c.ID != id || !c.Quorum || c.Leader() != c.Servers[0] {
			t.Errorf("got %+v", c)
		}
		want := []catalog.Member{{
			ID: c.Servers[0].ID(), Name: "m1", ClientURLs: []string{url},
			PeerURLs: []string{etcd.Config().AdvertisePeerUrls[0].String()},
		}}
		diff := cmp.Diff(want, c.Members)
		if diff != "" {
			t.Errorf("want -, got +:\n%s", diff)
		}
	})
	t.Run("none answers", func(t *testing.T) {
		hanging, _ := silent(t)
		cfg := at(dead[0], dead[1], "http://"+hanging)
		cfg.DialTimeout = 3 * time.Second
		err := refused(t, t.Context(), cfg)
		if !errors.Is(err, cluster.ErrSilent) {
			t.Errorf("error %v", err)
		}
		wantWords(t, err, dead[0]+": ", dead[1]+": ", "connection refused", hanging+": ", "deadline", "--endpoints")
	})
	t.Run("a login does not hide why none answers", func(t *testing.T) {
		cfg := at(dead[0])
		cfg.User, cfg.Password, cfg.DialTimeout = "root", secret, 3*time.Second
		wantWords(t, refused(t, t.Context(), cfg), "connection refused")
	})
	t.Run("endpoints of one member", func(t *testing.T) {
		other := strings.Replace(url, "127.0.0.1", "localhost", 1)
		bare := strings.TrimPrefix(url, "http://")
		c := connect(t, at(url, other, bare))
		wantServers(t, c, url)
		aliases := c.Servers[0].Aliases
		if len(c.Silent) > 0 || !slices.Equal(aliases, []string{other, bare}) {
			t.Errorf("silent: %v, aliases: %v", c.Silent, aliases)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := refused(t, ctx, at(url))
		if !errors.Is(err, context.Canceled) || errors.Is(err, cluster.ErrSilent) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("two clusters", func(t *testing.T) {
		fake := &fakeMember{clusterID: id + 1, memberID: 5}
		stranger := "http://" + fake.serve(t)
		err := refused(t, t.Context(), at(url, stranger, dead[0]))
		if !errors.Is(err, cluster.ErrMixed) {
			t.Errorf("error %v", err)
		}
		wantWords(t, err, url, stranger)
	})
}

func wantServers(t *testing.T, c *cluster.Cluster, endpoints ...string) {
	t.Helper()
	var got []string
	for _, s := range c.Servers {
		got = append(got, s.Endpoint)
	}
	slices.Sort(got)
	if !slices.Equal(got, slices.Sorted(slices.Values(endpoints))) {
		t.Errorf("servers %v, want %v; silent are %v", got, endpoints, c.Silent)
	}
}

func wantSilent(t *testing.T, c *cluster.Cluster, endpoint, word string) {
	t.Helper()
	for _, s := range c.Silent {
		if s.Endpoint == endpoint {
			wantWords(t, s.Err, word)
			return
		}
	}
	t.Errorf("%s is not among the silent: %v", endpoint, c.Silent)
}

// twoMembers returns one cluster's members, which know each other under the given client URLs.
func twoMembers(urlsOfSecond ...string) (first, second *fakeMember) {
	members := []*pb.Member{{ID: 1, Name: "m1"}, {ID: 2, Name: "m2", ClientURLs: urlsOfSecond}}
	first = &fakeMember{clusterID: 9, memberID: 1, members: members}
	return first, &fakeMember{clusterID: 9, memberID: 2, members: members}
}

// serveBoth serves the members of twoMembers until the test ends, and returns their client URLs, of which each knows the second's.
func serveBoth(t *testing.T, first, second *fakeMember) (urls []string) {
	t.Helper()
	urls = []string{"http://" + first.serve(t), "http://" + second.serve(t)}
	first.members[1].ClientURLs = urls[1:]
	return urls
}

func TestConnectFindsTheOtherMembers(t *testing.T) {
	t.Parallel()
	first, second := twoMembers()
	url := "http://" + second.serve(t)
	dead := servers.FreeURLs(t, 1)[0]
	first.members[1].ClientURLs = []string{url, dead}
	given := "http://" + first.serve(t)
	c := connect(t, at(given))
	wantServers(t, c, given, url)
	wantSilent(t, c, dead, "connection refused")
	if len(c.Members) != 2 {
		t.Errorf("members %v", c.Members)
	}
}

// TestConnectWithinReach connects to members on this host, by an address, by a name and by the URL that a member advertises: none of
// them is dialled.
func TestConnectWithinReach(t *testing.T) {
	t.Parallel()
	first, second := twoMembers()
	url := "http://" + second.serve(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range []string{url, "http://localhost:" + port, "https://localhost:" + port, "localhost:" + port} {
		cfg := at(endpoint)
		cfg.Reach = reach.OtherHosts
		wantWords(t, refused(t, t.Context(), cfg), "an address of this host", "--allow-loopback")
		cfg.User, cfg.Password = "root", "hidden"
		wantWords(t, refused(t, t.Context(), cfg), "an address of this host")
		if strings.HasPrefix(endpoint, "https") {
			lines := cluster.Check(t.Context(), cfg, cluster.CheckOptions{NoHash: true, Quick: true, Now: time.Now()}, nil)
			if !slices.ContainsFunc(lines, func(l check.Line) bool {
				return l.Name == "server certificates" && strings.Contains(l.Seen, "an address of this host")
			}) {
				t.Errorf("the check dialled: %+v", lines)
			}
		}
	}
	first.members[1].ClientURLs = []string{url, "http://localhost:" + port, "unix://run/etcd.sock"}
	cfg := at("http://" + first.serveAt(t, servers.ListenOutside(t)))
	cfg.Reach = reach.OtherHosts
	c := connect(t, cfg)
	wantServers(t, c, cfg.Endpoints[0])
	for _, advertised := range first.members[1].ClientURLs[:2] {
		wantSilent(t, c, advertised, "an address of this host")
	}
	wantSilent(t, c, "unix://run/etcd.sock", "")
	watch, err := c.Servers[0].Watch(t.Context(), 1)
	if err != nil {
		t.Fatalf("a watch of a member within reach: %v", err)
	}
	watch.Close()
	cfg.Reach = reach.Anywhere
	wantServers(t, connect(t, cfg), cfg.Endpoints[0], url)
}

// TestConnectDropsForeignServers checks a server of another cluster at a member's URL: the default URL of a member is
// localhost.
func TestConnectDropsForeignServers(t *testing.T) {
	t.Parallel()
	stranger := &fakeMember{clusterID: 8, memberID: 2}
	url := "http://" + stranger.serve(t)
	first, _ := twoMembers(url)
	given := "http://" + first.serve(t)
	c := connect(t, at(given))
	wantServers(t, c, given)
	wantSilent(t, c, url, "cluster 0000000000000008")
	if c.ID != 9 {
		t.Errorf("cluster %x", c.ID)
	}
}

func TestConnectKeepsCredentialsOffPlainURLs(t *testing.T) {
	t.Parallel()
	files := servers.NewCertificates(t)
	for _, test := range []struct {
		name, given string // %s is the address
		visited     bool
	}{
		{"https", "https://", false},
		{"no scheme but a CA", "", false},
		{"plain", "http://", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			plain, visits := silent(t)
			first, _ := twoMembers("http://" + plain)
			cfg := at()
			if test.visited {
				cfg.Endpoints = []string{test.given + first.serve(t)}
			} else {
				cfg.Endpoints = []string{test.given + first.serve(t, tlsOption(t, files.ServerCert, files.ServerKey))}
			}
			cfg.CACert, cfg.DialTimeout = files.CA, 5*time.Second
			wantServers(t, connect(t, cfg), cfg.Endpoints[0])
			got := visits() > 0
			if got != test.visited {
				t.Errorf("the plain URL was asked: %t, want %t", got, test.visited)
			}
		})
	}
}

func TestConnectWithoutAMemberList(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1, noMembers: true}
	err := refused(t, t.Context(), at("http://"+fake.serve(t)))
	wantWords(t, err, "list the members", "no list today")

	second := &fakeMember{clusterID: 9, memberID: 2, members: []*pb.Member{{ID: 1}, {ID: 2}}}
	c := connect(t, at("http://"+fake.serve(t), "http://"+second.serve(t)))
	if len(c.Members) != 2 {
		t.Errorf("members %v", c.Members)
	}
}

func TestConnectOverTLS(t *testing.T) {
	t.Parallel()
	files, others := servers.NewCertificates(t), servers.NewCertificates(t)
	url, _ := startEtcd(t, overTLS(t, files))
	with := func(change func(*cluster.Config)) cluster.Config {
		cfg := at(url)
		cfg.CACert, cfg.Cert, cfg.Key = files.CA, files.Cert, files.Key
		cfg.DialTimeout = 20 * time.Second // a handshake is slow on a loaded machine
		change(&cfg)
		return cfg
	}
	for _, test := range []struct {
		name   string
		change func(*cluster.Config)
		want   string
	}{
		{"all right", func(*cluster.Config) {}, ""},
		{"not verified", func(c *cluster.Config) { c.CACert, c.InsecureSkipVerify = others.CA, true }, ""},
		{"no scheme", func(c *cluster.Config) { c.Endpoints = []string{strings.TrimPrefix(url, "https://")} }, ""},
		{"another CA", func(c *cluster.Config) { c.CACert = others.CA }, "--cacert"},
		{"the system's roots", func(c *cluster.Config) { c.CACert = "" }, "--cacert"},
		{"the system's roots and no client certificate", func(c *cluster.Config) { c.CACert, c.Cert, c.Key = "", "", "" },
			"x509: certificate signed by unknown authority"},
		{"another CA and a login", func(c *cluster.Config) {
			c.CACert, c.User, c.Password, c.DialTimeout = others.CA, "root", secret, 5*time.Second // the login takes all of it
		},
			"x509: certificate signed by unknown authority"},
		{"no client certificate", func(c *cluster.Config) { c.Cert, c.Key = "", "" }, "--cert"},
		{"a stranger's client certificate", func(c *cluster.Config) { c.Cert, c.Key = others.Cert, others.Key }, "--cert"},
		{"plain to TLS", func(c *cluster.Config) { c.Endpoints = []string{strings.Replace(url, "https", "http", 1)} }, "use https:// in --endpoints"},
		{"a client certificate that has run out", func(c *cluster.Config) { c.Cert, c.Key = ranOut(t) }, "expired at 2001-"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := with(test.change)
			if test.want == "" {
				connect(t, cfg)
				return
			}
			err := refused(t, t.Context(), cfg)
			if !errors.Is(err, cluster.ErrSilent) {
				t.Errorf("error %v", err)
			}
			wantWords(t, err, test.want)
		})
	}
}

// TestConnectedWhileTheCAIsReplaced checks that a connection, which an agent keeps for months, is re-established with
// the current files after the CA was replaced.
func TestConnectedWhileTheCAIsReplaced(t *testing.T) {
	t.Parallel()
	files, others := servers.NewCertificates(t), servers.NewCertificates(t)
	url, server := startEtcd(t, overTLS(t, files))
	cfg := at(url)
	cfg.CACert, cfg.Cert, cfg.Key, cfg.DialTimeout, cfg.CommandTimeout = files.CA, files.Cert, files.Key, time.Minute, time.Minute
	c := connect(t, cfg)
	server.Close()
	for old, replacement := range map[string]string{
		files.CA: others.CA, files.Cert: others.Cert, files.Key: others.Key, files.ServerCert: others.ServerCert, files.ServerKey: others.ServerKey,
	} {
		err := os.Rename(replacement, old)
		if err != nil {
			t.Fatal(err)
		}
	}
	server.Restart(t)
	for {
		_, err := c.Servers[0].Now(t.Context())
		if err == nil {
			return
		}
		if strings.Contains(err.Error(), "x509") || t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // the server begins to listen
	}
}

// TestConnectNamesTheLastHandshake checks that the error names a refused certificate, and not the deadline, if the
// server stops answering after the refusal.
func TestConnectNamesTheLastHandshake(t *testing.T) {
	t.Parallel()
	files, others := servers.NewCertificates(t), servers.NewCertificates(t)
	certificate, err := tls.LoadX509KeyPair(files.ServerCert, files.ServerKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, user, password string }{{name: "no login"}, {"a login", "root", secret}} {
		t.Run(test.name, func(t *testing.T) {
			cfg := at("https://" + greetsOnce(t, certificate))
			cfg.CACert, cfg.User, cfg.Password = others.CA, test.user, test.password
			wantWords(t, refused(t, t.Context(), cfg), "x509: certificate signed by unknown authority")
		})
	}
}

func TestConnectTLSToPlain(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1}
	err := refused(t, t.Context(), at("https://"+fake.serve(t)))
	wantWords(t, err, "first record does not look like a TLS handshake", "use http:// in --endpoints")
}

// ranOut returns the files of an expired client certificate.
func ranOut(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("old.crt", "CERTIFICATE", cert), write("old.key", "PRIVATE KEY", der)
}

// TestPermissionDeniedByAnOldServer plays servers before 3.6, which refuse maintenance calls without a code.
func TestPermissionDeniedByAnOldServer(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1, snapshot: func(pb.Maintenance_SnapshotServer) error {
		return errors.New("auth: permission denied")
	}}
	c := connect(t, at("http://"+fake.serve(t)))
	_, err := c.Servers[0].Snapshot(t.Context(), time.Minute)
	if !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("error %v", err)
	}
	wantWords(t, err, "role root", "etcdctl user grant-role")
}

func TestConnectWithUsers(t *testing.T) {
	t.Parallel()
	url, _ := startEtcd(t, func(cfg *embed.Config) { cfg.AuthTokenTTL = 1 })
	enableUsers(t, clientOf(t, url, nil))
	as := func(user, password string) cluster.Config {
		cfg := at(url)
		cfg.User, cfg.Password = user, password
		return cfg
	}
	t.Run("root", func(t *testing.T) {
		c := connect(t, as("root", rootPassword))
		if !c.Quorum {
			t.Errorf("got %+v", c)
		}
		enabled, err := c.Servers[0].AuthEnabled(t.Context())
		if !enabled || err != nil {
			t.Errorf("authentication enabled: %t, %v", enabled, err)
		}
		snapshot, err := c.Servers[0].Snapshot(t.Context(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		snapshot.Close()
	})
	t.Run("wrong password", func(t *testing.T) {
		wantWords(t, refused(t, t.Context(), as("root", "no-"+secret)), "refuses this user and password")
	})
	t.Run("nobody", func(t *testing.T) {
		wantWords(t, refused(t, t.Context(), at(url)), "requires authentication", "--user")
	})
	t.Run("alice", func(t *testing.T) {
		c := connect(t, as("alice", rootPassword))
		if !c.Quorum || c.Leader() == nil {
			t.Errorf("a refusal is taken for silence: quorum %t", c.Quorum)
		}
		_, err := c.Servers[0].Snapshot(t.Context(), time.Minute)
		wantWords(t, err, "permission denied", "role root")
	})
	// A login expires while a long stream or upload leaves a client unused.
	t.Run("token that ran out", func(t *testing.T) {
		c := connect(t, as("root", rootPassword))
		time.Sleep(3 * time.Second)
		_, err := c.Servers[0].HashKV(t.Context(), 0)
		if err != nil {
			t.Error(err)
		}
	})
}

// TestConnectWithoutALoginToAnOldServer plays servers before 3.7, which return their status without a login and refuse the
// rest.
func TestConnectWithoutALoginToAnOldServer(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1, refusal: rpctypes.ErrGRPCUserEmpty}
	fake.snapshot = func(pb.Maintenance_SnapshotServer) error { return rpctypes.ErrGRPCUserEmpty }
	c := connect(t, at("http://"+fake.serve(t)))
	if !c.Quorum {
		t.Errorf("a refusal is taken for silence: quorum %t", c.Quorum)
	}
	_, err := c.Servers[0].Snapshot(t.Context(), time.Minute)
	wantWords(t, err, "requires authentication", "--user")
}

// TestConnectWithAnUncheckedLogin plays etcd without a quorum, which checks no password and reports that in a
// different way in each version.
func TestConnectWithAnUncheckedLogin(t *testing.T) {
	t.Parallel()
	for name, login := range map[string]func(context.Context) error{
		"it hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"3.4": func(context.Context) error {
			return status.Error(codes.Unknown, "context deadline exceeded")
		},
		"its own time runs out first": func(context.Context) error { return rpctypes.ErrGRPCTimeout },
	} {
		t.Run(name, func(t *testing.T) {
			fake := &fakeMember{clusterID: 9, memberID: 1, login: login}
			cfg := at("http://" + fake.serve(t))
			cfg.User, cfg.Password, cfg.DialTimeout = "root", secret, 3*time.Second
			wantWords(t, refused(t, t.Context(), cfg), "without a quorum", "--cert")
		})
	}
}

// TestConnectLogsInWhereNoUsersAre checks that credentials are no error if users are not enabled.
func TestConnectLogsInWhereNoUsersAre(t *testing.T) {
	t.Parallel()
	url, _ := startEtcd(t, nil)
	cfg := at(url)
	cfg.User, cfg.Password = "root", secret
	c := connect(t, cfg)
	enabled, err := c.Servers[0].AuthEnabled(t.Context())
	if enabled || err != nil {
		t.Errorf("authentication enabled: %t, %v", enabled, err)
	}
}
