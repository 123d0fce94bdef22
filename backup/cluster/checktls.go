package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/check"
)

// renewBefore is the least time before its end at which a certificate should have been renewed.
const renewBefore = 30 * 24 * time.Hour

// endsSoon reports whether a certificate that ends then should have been renewed.
func (o CheckOptions) endsSoon(end time.Time) bool {
	return end.Sub(o.Now) < max(renewBefore, o.RenewBefore)
}

const renew = "renew it: from that day on no client can connect"

// serverCertificates checks the certificate of each endpoint, even of one that cannot be connected to: an expired
// certificate may be the reason.
func (c *checked) serverCertificates(ctx context.Context) check.Line {
	var first, from = time.Time{}, "" // the earliest end, zero if none was read, and its endpoint
	var plain, unread []string
	for _, endpoint := range c.endpoints() {
		if !c.cfg.encrypts(endpoint) {
			plain = append(plain, endpoint)
			continue
		}
		end, err := c.cfg.expiry(ctx, endpoint)
		if err != nil {
			unread = append(unread, fmt.Sprintf("%s: %v", endpoint, err))
		} else if first.IsZero() || end.Before(first) {
			first, from = end, endpoint
		}
	}
	switch {
	case !first.IsZero() && c.o.endsSoon(first):
		return withExpiry(first, found(check.Wanting, renew, "the certificate of %s %s", from, expiryText(first, c.o.Now)))
	case len(unread) > 0:
		return found(check.Unknown, "", "not read: %s", strings.Join(unread, "; "))
	case len(plain) > 0:
		return found(check.Note, "use TLS: a snapshot holds every secret in etcd",
			"no TLS at %s: anyone on the network path can read everything", strings.Join(plain, ", "))
	}
	return withExpiry(first, found(check.OK, "", "the first one, of %s, %s", from, expiryText(first, c.o.Now)))
}

func withExpiry(end time.Time, l check.Line) check.Line {
	l.Ends = end.UTC()
	return l
}

// endpoints returns the configured endpoints and, if a member answers, those of the other members.
func (c *checked) endpoints() []string {
	all := slices.Clone(c.cfg.Endpoints)
	if c.Cluster == nil {
		return all
	}
	for _, s := range c.Servers {
		if !slices.Contains(all, s.Endpoint) {
			all = append(all, s.Endpoint)
		}
	}
	return all
}

func expiryText(end, now time.Time) string {
	day := end.UTC().Format(time.DateOnly)
	if end.Before(now) {
		return "ran out on " + day
	}
	return fmt.Sprintf("runs out on %s, in %d days", day, end.Sub(now)/(24*time.Hour))
}

// expiry returns the first end in the certificate chain that endpoint presents. It does not verify the chain, and sends
// nothing but the client certificate. An error after the server has presented its chain is ignored.
func (c Config) expiry(ctx context.Context, endpoint string) (time.Time, error) {
	conf, err := c.client(endpoint)
	if err != nil {
		return time.Time{}, err
	}
	shown := &tls.Config{MinVersion: tls.VersionTLS12}
	if conf.TLS != nil {
		shown = conf.TLS.Clone()
	}
	var chain []*x509.Certificate
	shown.InsecureSkipVerify = true
	shown.VerifyConnection = func(state tls.ConnectionState) error {
		chain = state.PeerCertificates
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	network, address := dialAddress(endpoint)
	conn, err := c.dialer().DialContext(ctx, network, address)
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Close()
	err = tls.Client(conn, shown).HandshakeContext(ctx)
	if err != nil && len(chain) == 0 {
		return time.Time{}, err
	}
	return earliestExpiry(chain), nil
}

// dialAddress returns the network and address of an endpoint. One without a scheme is a host and port, as in etcd.
func dialAddress(endpoint string) (network, address string) {
	scheme, rest, ok := strings.Cut(endpoint, "://")
	switch {
	case !ok:
		return "tcp", endpoint
	case strings.HasPrefix(scheme, "unix"):
		return "unix", rest
	}
	return "tcp", strings.TrimSuffix(rest, "/")
}

func earliestExpiry(chain []*x509.Certificate) time.Time {
	end := chain[0].NotAfter
	for _, cert := range chain {
		if cert.NotAfter.Before(end) {
			end = cert.NotAfter
		}
	}
	return end
}

func (c *checked) clientCertificate(context.Context) check.Line {
	if c.cfg.Cert == "" {
		return found(check.NotRun, "", "no --cert is given")
	}
	chain, err := readChain(c.cfg.Cert)
	if err != nil {
		return found(check.Unknown, "", "%v", err)
	}
	end := earliestExpiry(chain)
	if c.o.endsSoon(end) {
		return withExpiry(end, found(check.Wanting, renew, "%s %s", c.cfg.Cert, expiryText(end, c.o.Now)))
	}
	return withExpiry(end, found(check.OK, "", "%s %s", c.cfg.Cert, expiryText(end, c.o.Now)))
}

// readChain returns all certificates in a PEM file.
func readChain(file string) ([]*x509.Certificate, error) {
	rest, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var chain []*x509.Certificate
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		chain = append(chain, cert)
	}
	if len(chain) == 0 {
		return nil, errors.New(file + " contains no certificate")
	}
	return chain, nil
}
