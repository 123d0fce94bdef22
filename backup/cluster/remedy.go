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

// remedies maps parts of the errors of Go's TLS and gRPC to remedies.
var remedies = []struct{ text, remedy string }{
	{"certificate signed by unknown authority", "give the CA of the server's certificate with --cacert"},
	{"certificate has expired or is not yet valid", "renew the server's certificate, or set this machine's clock"},
	{"x509: certificate is ", "in --endpoints use a name that the server's certificate contains"},
	{"first record does not look like a TLS handshake", "the server seems to speak no TLS: use http:// in --endpoints"},
	{"handshake failed: EOF", "the server seems to speak no TLS, or is shutting down: try http:// in --endpoints"},
	{"error reading server preface", "the server seems to require TLS: use https:// in --endpoints, and --cacert"},
}

// hungUp lists texts of a client's error after a TLS server has closed the connection. The server first sends its reason,
// but if it closes with data unread, the client may see only a broken connection.
var hungUp = []string{"remote error: tls", "broken pipe", "connection reset"}

// withRemedy adds the remedy to the error of a connection to endpoint.
func (c Config) withRemedy(endpoint string, err error) error {
	text := err.Error()
	for _, part := range hungUp {
		if c.encrypts(endpoint) && strings.Contains(text, part) {
			return fmt.Errorf("%w: %s", err, c.certificateRemedy(time.Now()))
		}
	}
	for _, r := range remedies {
		if strings.Contains(text, r.text) {
			return fmt.Errorf("%w: %s", err, r.remedy)
		}
	}
	return err
}

// certificateRemedy returns the remedy for a client whose certificate the server may have refused.
func (c Config) certificateRemedy(now time.Time) string {
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err == nil {
		client, err := x509.ParseCertificate(pair.Certificate[0])
		if err == nil && now.After(client.NotAfter) {
			return fmt.Sprintf("the client certificate %s expired at %s: pass a valid one with --cert and --key",
				c.Cert, client.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	return "if the server requires a client certificate, pass one that a CA it trusts has signed, with --cert and --key"
}

// withCode returns etcd's own error for a denied call whose code is missing, as in maintenance calls of servers before 3.6.
// It returns any other err as it is.
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
