package cluster

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// handshakes are TLS credentials that read their files before each handshake: a process reconnects for months, but a
// certificate may last for weeks. They record the last handshake's error: gRPC does not return it once the caller's
// deadline has passed.
type handshakes struct {
	credentials.TransportCredentials
	reread func() (*tls.Config, error)
	last   *failure
}

type failure struct {
	mu  sync.Mutex
	err error // nil after a successful handshake
}

func newHandshakes(cfg *tls.Config, reread func() (*tls.Config, error)) handshakes {
	return handshakes{credentials.NewTLS(cfg), reread, &failure{}}
}

// ClientHandshake implements credentials.TransportCredentials.
func (h handshakes) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	current := h.TransportCredentials
	cfg, err := h.reread()
	if err == nil { // if the files cannot be read, the ones read before remain in use
		current = credentials.NewTLS(cfg)
	}
	secure, info, err := current.ClientHandshake(ctx, authority, conn)
	if ctx.Err() == nil { // after the end of ctx, err may not be the server's
		h.last.mu.Lock()
		h.last.err = err
		h.last.mu.Unlock()
	}
	return secure, info, err
}

// Clone implements credentials.TransportCredentials. The copy records errors in the same place.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.reread, h.last}
}

// err returns the error of the last handshake, or nil.
func (h handshakes) err() error {
	if h.last == nil {
		return nil
	}
	h.last.mu.Lock()
	defer h.last.mu.Unlock()
	return h.last.err
}
