package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// reasons maps parts of the errors of Go's TLS and gRPC to remedies.
var reasons = []struct{ of, cure string }{
	{"certificate signed by unknown authority", "give the CA of the server's certificate with --cacert"},
	{"certificate has expired or is not yet valid", "renew the server's certificate, or set this machine's clock"},
	{"x509: certificate is ", "use a name in --endpoints for which the server's certificate is good"},
	{"first record does not look like a TLS handshake", "the server seems to speak no TLS: use http:// in --endpoints"},
	{"handshake failed: EOF", "the server seems to speak no TLS, or is ending: try http:// in --endpoints"},
	{"error reading server preface", "the server seems to require TLS: use https:// in --endpoints, and --cacert"},
}

// hungUp lists parts of a client's error when a TLS server closes the connection. The server sends its reason first, but
// if it has not read all data, the client may only see a broken connection.
var hungUp = []string{"remote error: tls", "broken pipe", "connection reset"}

// withCure adds the remedy to the error of a connection to endpoint.
func (c Config) withCure(endpoint string, err error) error {
	text := err.Error()
	for _, part := range hungUp {
		if c.encrypts(endpoint) && strings.Contains(text, part) {
			return fmt.Errorf("%w: %s", err, c.certificateCure(time.Now()))
		}
	}
	for _, r := range reasons {
		if strings.Contains(text, r.of) {
			return fmt.Errorf("%w: %s", err, r.cure)
		}
	}
	return err
}

// certificateCure returns the remedy for a client whose certificate the server may have refused.
func (c Config) certificateCure(now time.Time) string {
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err == nil {
		own, err := x509.ParseCertificate(pair.Certificate[0])
		if err == nil && now.After(own.NotAfter) {
			return fmt.Sprintf("the client certificate %s ran out at %s: give one that is valid with --cert and --key",
				c.Cert, own.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	return "if it requires a client certificate, give one of its CA with --cert and --key"
}

// withCode returns err with etcd's code for it, which maintenance calls of servers before 3.6 omit.
func withCode(err error) error {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unknown {
		return err
	}
	switch s.Message() {
	case "auth: permission denied":
		return rpctypes.ErrGRPCPermissionDenied
	case "auth: user name is empty":
		return rpctypes.ErrGRPCUserEmpty
	}
	return err
}
