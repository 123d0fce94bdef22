package faults

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// gate is a proxy in front of a member. It passes so many bytes of the member's answers and holds the rest until it is
// opened, so that a test is certainly in the middle of a snapshot.
type gate struct {
	url      string
	member   string // host and port
	limit    int64
	passed   atomic.Int64
	listener net.Listener

	reached     chan struct{} // closed at the limit
	reachedOnce sync.Once
	opened      chan struct{}
	openedOnce  sync.Once
}

func newGate(t testing.TB, memberURL string, limit int64) *gate {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{
		url: "http://" + listener.Addr().String(), member: strings.TrimPrefix(memberURL, "http://"), limit: limit,
		listener: listener, reached: make(chan struct{}), opened: make(chan struct{}),
	}
	t.Cleanup(func() {
		listener.Close()
		g.open()
	})
	go g.serve()
	return g
}

func (g *gate) open() { g.openedOnce.Do(func() { close(g.opened) }) }

func (g *gate) serve() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return // the test is over
		}
		go g.join(client)
	}
}

func (g *gate) join(client net.Conn) {
	defer client.Close()
	member, err := net.Dial("tcp", g.member)
	if err != nil {
		return
	}
	defer member.Close()
	go func() {
		_, _ = io.Copy(member, client)
		member.Close() // the client is gone: ends the other direction too
	}()
	_, _ = io.Copy(client, io.TeeReader(member, g))
}

// Write counts bytes, and blocks at the limit.
func (g *gate) Write(p []byte) (int, error) {
	if g.passed.Add(int64(len(p))) > g.limit {
		g.reachedOnce.Do(func() { close(g.reached) })
		<-g.opened
	}
	return len(p), nil
}
