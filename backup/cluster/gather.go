package cluster

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// A watch brings each revision in a packet of its own. Whoever reads them as they come is woken for each, several times
// over, which costs five times as much as the rest. So they are gathered for a moment.
const (
	gatherTime  = 50 * time.Millisecond
	gatherBytes = 128 << 10 // then at once
	// windowBytes is what the member may send meanwhile.
	windowBytes = 4 << 20
	// settleTime is more than it takes to bring what was gathered to whom it is for.
	settleTime = 5 * time.Millisecond
)

// gathered has a client with these credentials read its connections so.
func gathered(c credentials.TransportCredentials) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(gatherCredentials{c}),
		grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(windowBytes),
	}
}

// gatherCredentials are the place where a connection can be had before anything reads it, however it was dialled.
type gatherCredentials struct {
	credentials.TransportCredentials
}

func (g gatherCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return g.TransportCredentials.ClientHandshake(ctx, authority, gather(conn))
}

func (g gatherCredentials) Clone() credentials.TransportCredentials {
	return gatherCredentials{g.TransportCredentials.Clone()}
}

// gathering is a connection that waits a moment for more before it reads again.
type gathering struct {
	net.Conn
	r       *bufio.Reader
	drained bool // the last read took all that there was
}

func gather(conn net.Conn) *gathering {
	waitForMany(conn, gatherBytes)
	return &gathering{Conn: conn, r: bufio.NewReaderSize(conn, gatherBytes)}
}

func (g *gathering) Read(p []byte) (int, error) {
	if g.r.Buffered() > 0 {
		return g.r.Read(p)
	}
	if g.drained {
		time.Sleep(gatherTime)
	}
	n, err := g.next(p)
	g.drained = n+g.r.Buffered() < gatherBytes
	return n, err
}

// next looks again and again for what is too little to be woken for.
func (g *gathering) next(p []byte) (int, error) {
	for {
		if err := g.SetReadDeadline(time.Now().Add(gatherTime)); err != nil {
			return 0, err
		}
		n, err := g.r.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}
