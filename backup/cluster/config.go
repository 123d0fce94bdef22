// Package cluster sees a live etcd cluster through its clients' port: who answers, who leads, what a member says of
// itself, and its snapshot as a stream.
package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Config says how to reach a cluster, as etcdctl's flags of the same names do.
type Config struct {
	Endpoints          []string
	CACert, Cert, Key  string // files; the server's certificate is verified against CACert, or the system's roots
	ServerName         string // the name that every server's certificate must be good for; "": its own
	InsecureSkipVerify bool   // do not verify it: for a test, or for the night when the CA is gone too
	User, Password     string
	DialTimeout        time.Duration // to connect to one endpoint and log in
	CommandTimeout     time.Duration // for one answer
}

// ErrConfig: the configuration cannot be used as written.
var ErrConfig = errors.New("bad etcd client configuration")

// Validate finds what can be found without asking anybody: no endpoint, a malformed one, an unreadable key file. Its
// errors match ErrConfig.
func (c Config) Validate() error {
	if len(c.Endpoints) == 0 {
		return fmt.Errorf("%w: no endpoint: name one or more with --endpoints or ETCDCTL_ENDPOINTS", ErrConfig)
	}
	for _, endpoint := range c.Endpoints {
		if err := validEndpoint(endpoint); err != nil {
			return err
		}
	}
	if (c.Cert == "") != (c.Key == "") {
		return fmt.Errorf("%w: --cert and --key go together", ErrConfig)
	}
	if c.Password != "" && c.User == "" {
		return fmt.Errorf("%w: a password without --user", ErrConfig)
	}
	if c.User != "" && c.Password == "" { // etcd's client would then not log in at all, and say nothing
		return fmt.Errorf("%w: the password of user %s is empty: use --password-file or ETCDCTL_PASSWORD", ErrConfig, c.User)
	}
	_, err := c.client(c.Endpoints[0])
	return err
}

func validEndpoint(endpoint string) error {
	if strings.Contains(endpoint, "@") { // before any error that quotes the endpoint
		return fmt.Errorf("%w: an endpoint holds a user or password: use --user", ErrConfig)
	}
	host := endpoint
	if scheme, rest, ok := strings.Cut(endpoint, "://"); ok {
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

// encrypts reports whether etcd's client speaks TLS to endpoint: without a scheme it does if it has anything to verify
// or show.
func (c Config) encrypts(endpoint string) bool {
	scheme, _, ok := strings.Cut(endpoint, "://")
	if ok && scheme != "unix" {
		return scheme == "https" || scheme == "unixs"
	}
	return c.CACert != "" || c.Cert != "" || c.InsecureSkipVerify
}

// client is the configuration for one endpoint. One client an endpoint, so that each answer is known to be that
// member's own.
func (c Config) client(endpoint string) (clientv3.Config, error) {
	cfg := clientv3.Config{
		Endpoints:   []string{endpoint},
		DialTimeout: c.DialTimeout,
		// A member whose machine vanished sends no reset: without these a broken stream would hang.
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 10 * time.Second,
		// Few tries: a dead endpoint then says why at once, instead of being tried until the deadline hides the reason.
		// The second is for a login that ran out while a long stream or upload left it unused.
		MaxUnaryRetries: 2,
		Username:        c.User,
		Password:        c.Password,
		Logger:          zap.NewNop(),
	}
	var err error
	cfg.TLS, err = c.tls()
	return cfg, err
}

// tls returns the client's side of TLS as the files are now; nil, which is with the system's roots, where nothing is set.
func (c Config) tls() (*tls.Config, error) {
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
	if c.CACert != "" && cfg.RootCAs.Equal(x509.NewCertPool()) { // every server would be refused, whoever it is
		return nil, fmt.Errorf("%w: --cacert: %s holds no certificate", ErrConfig, c.CACert)
	}
	return cfg, nil
}
