package cluster

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// handshakes are TLS credentials that remember why the last handshake failed. gRPC keeps that from its callers once their
// deadline has passed.
type handshakes struct {
	credentials.TransportCredentials
	last *failure
}

type failure struct {
	mu  sync.Mutex
	err error // nil after a handshake that succeeded
}

func newHandshakes(cfg *tls.Config) handshakes {
	return handshakes{credentials.NewTLS(cfg), &failure{}}
}

// ClientHandshake implements credentials.TransportCredentials.
func (h handshakes) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, conn)
	if ctx.Err() == nil { // else the caller gave up, which is no reason
		h.last.mu.Lock()
		h.last.err = err
		h.last.mu.Unlock()
	}
	return secure, info, err
}

// Clone implements credentials.TransportCredentials. The copy reports to the same place.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.last}
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
