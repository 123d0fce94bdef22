// Package transport makes the HTTP connections to object stores: verified, and never silent for ever.
package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

const (
	dialTime      = 15 * time.Second
	handshakeTime = 15 * time.Second
	keepTime      = 45 * time.Second // shorter than silence, so that no connection is reused that is about to break
	silence       = time.Minute      // how long a connection may stand still in the middle of a request
)

// New makes a transport that trusts the system's roots and the PEM certificates in caFile, if one is named. Proxies are
// those of the environment (HTTPS_PROXY, NO_PROXY), as for every client in Go.
//
// A connection on which nothing moves for a minute while something should is broken off, so that a network which
// swallows packets becomes an error. A slow one does not: every byte that moves counts. Requests are HTTP/1.1, each
// on a connection of its own: the silence of a shared one would say nothing of a single stream.
func New(caFile string) (*http.Transport, error) {
	roots, err := trusted(caFile)
	if err != nil {
		return nil, err
	}
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
	}, nil
}

// trusted returns the system's roots and those in caFile; nil, which is the system's, without one.
func trusted(caFile string) (*x509.CertPool, error) {
	if caFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("certificates of the authorities to trust: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("the system's certificates: %w", err)
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate (-----BEGIN CERTIFICATE-----)", caFile)
	}
	return roots, nil
}
