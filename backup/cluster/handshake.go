package cluster

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// handshakes are TLS credentials that read their files at each handshake, since connections are made again for months and
// certificates last for weeks. They remember why the last handshake failed: gRPC keeps that from its callers once their deadline
// has passed.
type handshakes struct {
	credentials.TransportCredentials
	reread func() (*tls.Config, error)
	last   *failure
}

type failure struct {
	mu  sync.Mutex
	err error // nil after a handshake that succeeded
}

func newHandshakes(cfg *tls.Config, reread func() (*tls.Config, error)) handshakes {
	return handshakes{credentials.NewTLS(cfg), reread, &failure{}}
}

// ClientHandshake implements credentials.TransportCredentials.
func (h handshakes) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	current := h.TransportCredentials
	cfg, err := h.reread()
	if err == nil { // else what was read before still counts
		current = credentials.NewTLS(cfg)
	}
	secure, info, err := current.ClientHandshake(ctx, authority, conn)
	if ctx.Err() == nil { // else the caller gave up, which is no reason
		h.last.mu.Lock()
		h.last.err = err
		h.last.mu.Unlock()
	}
	return secure, info, err
}

// Clone implements credentials.TransportCredentials. The copy reports to the same place.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.reread, h.last}
}

// err returns why the last handshake failed, nil if it did not.
func (h handshakes) err() error {
	if h.last == nil {
		return nil
	}
	h.last.mu.Lock()
	defer h.last.mu.Unlock()
	return h.last.err
}
