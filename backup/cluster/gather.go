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

// A watch delivers each revision in a packet of its own. Each packet wakes the reader, several times over, which costs
// five times as much CPU as all other work. So a gathering connection collects packets for a moment before each read.
const (
	gatherTime  = 50 * time.Millisecond // how long packets are collected
	gatherBytes = 128 << 10             // this much is read without waiting
	// windowBytes is how much the member may send while packets are collected.
	windowBytes = 4 << 20
	// passTime is longer than collected data needs to pass through gRPC to Recv.
	passTime = 5 * time.Millisecond
)

// gathered returns dial options for a client whose connections gather.
func gathered(c credentials.TransportCredentials) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(gatherCredentials{c}),
		grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(windowBytes),
	}
}

// gatherCredentials makes each new connection a gathering one at its handshake, before its first read. This works with
// any dialer.
type gatherCredentials struct {
	credentials.TransportCredentials
}

func (g gatherCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return g.TransportCredentials.ClientHandshake(ctx, authority, gather(conn))
}

func (g gatherCredentials) Clone() credentials.TransportCredentials {
	return gatherCredentials{g.TransportCredentials.Clone()}
}

// gathering is a connection that waits a moment for more data before it reads again.
type gathering struct {
	net.Conn
	r       *bufio.Reader
	drained bool // the last read took all available data
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
	n, err := g.read(p)
	g.drained = n+g.r.Buffered() < gatherBytes
	return n, err
}

// read returns data that has arrived, and waits if there is none. It reads again after each timeout, because less than
// gatherBytes does not wake it (see waitForMany).
func (g *gathering) read(p []byte) (int, error) {
	for {
		err := g.SetReadDeadline(time.Now().Add(gatherTime))
		if err != nil {
			return 0, err
		}
		n, err := g.r.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}
