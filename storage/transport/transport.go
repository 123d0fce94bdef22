// Package transport makes the HTTP connections to object stores: verified, and never silent for ever.
package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"
)

const (
	dialTime      = 15 * time.Second
	handshakeTime = 15 * time.Second
	keepTime      = 45 * time.Second // shorter than silence, so that no connection is reused that is about to break
	silence       = time.Minute      // how long a connection may stand still in the middle of a request
)

// WithRoots returns a transport that trusts roots; nil are the system's. Proxies are those of the environment (HTTPS_PROXY,
// NO_PROXY), as for every client in Go.
//
// A connection on which nothing moves for a minute while something should is broken off, so that a network which
// swallows packets becomes an error. A slow one does not: every byte that moves counts. Requests are HTTP/1.1, each
// on a connection of its own: the silence of a shared one would say nothing of a single stream.
func WithRoots(roots *x509.CertPool) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}
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
		IdleConnTimeout:       keepTime,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   100,
		DisableCompression:    true, // a stored object is read as it is, with the length that the store says
	}
}
