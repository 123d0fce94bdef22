// Package cluster accesses a live etcd cluster through its clients' port: the members that answer, their status, and a
// member's snapshot as a stream. Connect returns a Cluster.
package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/reach"
)

// Config configures the access to a cluster, like etcdctl's flags of the same names.
type Config struct {
	Endpoints          []string
	CACert, Cert, Key  string // files; the server's certificate is verified against CACert, or the system's roots
	PEM                PEM    // replaces these files, unless it is the zero PEM
	ServerName         string // the name for which every server's certificate must be valid; "": the host in its endpoint
	InsecureSkipVerify bool   // do not verify the servers' certificates: for tests, or if the CA is lost too
	User, Password     string
	DialTimeout        time.Duration // to connect to one endpoint and log in
	CommandTimeout     time.Duration // for one answer of one member
	// Reach bounds the addresses to which the endpoints, and the client URLs that members advertise, may lead. With reach.OtherHosts,
	// a connection to this host fails, and no proxy is used.
	Reach reach.Reach
	// Dial connects to a host and port in place of the network, and of Reach; nil: the network.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// ErrConfig means that the configuration is not usable as written.
var ErrConfig = fault.New(fault.Usage, "bad etcd client configuration")

// Validate returns the errors that can be found without a request: no endpoint, a malformed one, an unreadable key
// file. They match ErrConfig.
func (c Config) Validate() error {
	if len(c.Endpoints) == 0 {
		return fmt.Errorf("%w: no endpoint: name one or more with --endpoints or ETCDCTL_ENDPOINTS", ErrConfig)
	}
	for _, endpoint := range c.Endpoints {
		err := validEndpoint(endpoint)
		if err != nil {
			return err
		}
	}
	if (c.Cert == "") != (c.Key == "") {
		return fmt.Errorf("%w: --cert and --key go together: pass both", ErrConfig)
	}
	if c.Password != "" && c.User == "" {
		return fmt.Errorf("%w: a password without --user: pass --user", ErrConfig)
	}
	if c.User != "" && c.Password == "" { // etcd's client would then silently skip the login
		return fmt.Errorf("%w: the password of user %s is empty: use --password-file or ETCDCTL_PASSWORD", ErrConfig, c.User)
	}
	_, err := c.client(c.Endpoints[0])
	return err
}

func validEndpoint(endpoint string) error {
	if strings.Contains(endpoint, "@") { // checked first: the errors below quote the endpoint
		return fmt.Errorf("%w: an endpoint contains a user or password: use --user", ErrConfig)
	}
	host := endpoint
	scheme, rest, ok := strings.Cut(endpoint, "://")
	if ok {
		if scheme != "http" && scheme != "https" && scheme != "unix" && scheme != "unixs" {
			return fmt.Errorf("%w: endpoint %q: it should start with https:// or http://", ErrConfig, endpoint)
		}
		host = rest
	}
	if host == "" || strings.ContainsAny(host, " \t,?#") {
		return fmt.Errorf("%w: endpoint %q: it should look like https://10.0.0.1:2379", ErrConfig, endpoint)
	}
	return nil
}

// encrypts reports whether etcd's client uses TLS for endpoint. Without a scheme it does if the configuration has a CA,
// a certificate or InsecureSkipVerify.
func (c Config) encrypts(endpoint string) bool {
	scheme, _, ok := strings.Cut(endpoint, "://")
	if ok && scheme != "unix" {
		return scheme == "https" || scheme == "unixs"
	}
	return c.CACert != "" || c.Cert != "" || c.PEM.given() || c.InsecureSkipVerify
}

// client returns the configuration for one endpoint. Each endpoint has its own client, so that each answer is known to
// come from that member.
func (c Config) client(endpoint string) (clientv3.Config, error) {
	cfg := clientv3.Config{
		Endpoints:   []string{endpoint},
		DialTimeout: c.DialTimeout,
		// A vanished machine sends no TCP reset: without keepalives a broken stream would hang.
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 10 * time.Second,
		// Few tries, so that a failing endpoint returns its reason at once, and not the deadline after many tries. The
		// second one is for a login that expired while a long stream or upload left it unused.
		MaxUnaryRetries: 2,
		Username:        c.User,
		Password:        c.Password,
		Logger:          zap.NewNop(),
	}
	dial := c.Dial
	if dial == nil && c.Reach != reach.Anywhere {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return c.dialer().DialContext(ctx, "tcp", address)
		}
	}
	if dial != nil {
		cfg.DialOptions = []grpc.DialOption{grpc.WithContextDialer(dial)}
	}
	var err error
	cfg.TLS, err = c.tls()
	return cfg, err
}

// dialer returns the dialer of connections within c.Reach.
func (c Config) dialer() *net.Dialer { return &net.Dialer{Control: c.Reach.Control} }

// tls returns the client's TLS configuration with the current files. It returns nil, which means the system's roots, if
// no TLS option is set.
func (c Config) tls() (*tls.Config, error) {
	if c.PEM.given() {
		return c.tlsFromPEM()
	}
	if c.CACert == "" && c.Cert == "" && c.ServerName == "" && !c.InsecureSkipVerify {
		return nil, nil
	}
	info := transport.TLSInfo{
		CertFile: c.Cert, KeyFile: c.Key, TrustedCAFile: c.CACert, ServerName: c.ServerName, InsecureSkipVerify: c.InsecureSkipVerify, Logger: zap.NewNop(),
	}
	cfg, err := info.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: --cacert, --cert, --key: %w", ErrConfig, err)
	}
	if c.CACert != "" && cfg.RootCAs.Equal(x509.NewCertPool()) { // every server would be refused
		return nil, fmt.Errorf("%w: --cacert: %s contains no certificate: name a file of PEM certificates", ErrConfig, c.CACert)
	}
	return cfg, nil
}

// PEM holds a CA bundle, and a client's certificate with its key.
type PEM struct{ CA, Cert, Key []byte }

// given reports whether p is not the zero PEM.
func (p PEM) given() bool { return len(p.CA) > 0 || len(p.Cert) > 0 || len(p.Key) > 0 }

// tlsFromPEM returns the client's TLS configuration with the certificates in c.PEM.
func (c Config) tlsFromPEM() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName, InsecureSkipVerify: c.InsecureSkipVerify}
	if len(c.PEM.CA) > 0 {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(c.PEM.CA) {
			return nil, fmt.Errorf("%w: the CA contains no certificate: use PEM", ErrConfig)
		}
	}
	if len(c.PEM.Cert) > 0 || len(c.PEM.Key) > 0 {
		pair, err := tls.X509KeyPair(c.PEM.Cert, c.PEM.Key)
		if err != nil {
			return nil, fmt.Errorf("%w: the client's certificate and key: %w", ErrConfig, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
