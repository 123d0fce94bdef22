// Package transport makes the HTTP connections to object stores. It verifies their certificates and breaks connections
// that hang.
package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/reach"
)

const (
	dialTime      = 15 * time.Second
	handshakeTime = 15 * time.Second
	idleTime      = 45 * time.Second // after which an unused connection is closed; less than silence, or one could fail when it is reused
	silence       = time.Minute      // how long a connection may transfer nothing in the middle of a request
)

// WithRoots returns a transport that trusts roots; nil means the system's. It uses the proxies in the environment
// (HTTPS_PROXY, NO_PROXY), as Go's default transport does.
//
// A connection that transfers no byte for a minute in the middle of a request is closed, so that a network which drops
// packets causes an error. A slow connection stays open: every byte restarts the minute. Requests use HTTP/1.1, each on
// its own connection: a connection that several streams share would hide that one of them is silent.
func WithRoots(roots *x509.CertPool) *http.Transport { return within(reach.Anywhere, roots) }

// Trusting returns a transport for connections to the addresses in r. It trusts the system's roots and the certificates in pem, which must
// contain at least one.
func Trusting(r reach.Reach, pem []byte) (*http.Transport, error) {
	roots, err := rootsWith(pem, "the given text")
	if err != nil {
		return nil, err
	}
	return within(r, roots), nil
}

// within returns the transport that WithRoots describes. It connects only to addresses in r, even if the address is a proxy's.
func within(r reach.Reach, roots *x509.CertPool) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second, Control: r.Control}
	http1 := new(http.Protocols)
	http1.SetHTTP1(true)
	return &http.Transport{
		Proxy:     http.ProxyFromEnvironment,
		Protocols: http1,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &watched{Conn: conn, limit: silence}, nil
		},
		TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   handshakeTime,
		ResponseHeaderTimeout: silence,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       idleTime,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   100,
		DisableCompression:    true, // an object is read as stored, with the length that the store announces
	}
}
