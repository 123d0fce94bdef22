package objectstores

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Direction is one of a connection's two.
type Direction string

// The directions of what is sent through a Proxy.
const (
	ToServer Direction = "upstream"
	ToClient Direction = "downstream"
)

// Proxy is a network between a client and a server, to be broken at will. It passes bytes on and knows nothing of what
// is in them: TLS goes through it. What is done to it holds for connections that are there already and for new ones,
// for each by itself.
type Proxy struct {
	Address string // host:port for the clients

	t        testing.TB
	upstream string
	mu       sync.Mutex
	proxy    *toxiproxy.Proxy
	toxics   int
}

// quiet keeps toxiproxy from writing through zerolog's global logger, which it does whatever logger it is given.
var quiet = sync.OnceFunc(func() { zerolog.SetGlobalLevel(zerolog.Disabled) })

// NewProxy starts a proxy before the server at endpoint: a URL, of which the host counts, or host:port. It ends with
// the test.
func NewProxy(t testing.TB, endpoint string) *Proxy {
	t.Helper()
	quiet()
	upstream := endpoint
	if strings.Contains(endpoint, "://") {
		u, err := url.Parse(endpoint)
		if err != nil {
			t.Fatal(err)
		}
		upstream = u.Host
	}
	p := &Proxy{Address: "127.0.0.1:0", t: t, upstream: upstream}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Clear()
		p.Cut()
	})
	return p
}

// start takes the address that the proxy had before.
func (p *Proxy) start() error {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, "test", p.Address, p.upstream)
	if err := proxy.Start(); err != nil {
		return err
	}
	p.proxy, p.Address = proxy, proxy.Listen
	return nil
}

// Cut ends every connection, and new ones are refused.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proxy != nil {
		p.proxy.Stop()
		p.proxy = nil
	}
}

// Restore listens again after Cut, with nothing wrong any more.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proxy != nil {
		return
	}
	if err := p.start(); err != nil {
		p.t.Errorf("restore the proxy: %v", err)
	}
}

// Retarget leads to the server at host:port from now on. Connections that are open end.
func (p *Proxy) Retarget(upstream string) {
	p.Cut()
	p.mu.Lock()
	p.upstream = upstream
	p.mu.Unlock()
	p.Restore()
}

// Slow lets each connection have so many bytes per second in each direction; below 1024 it is 1024.
func (p *Proxy) Slow(bytesPerSecond int) {
	rate := max(bytesPerSecond/1024, 1)
	p.add("bandwidth", ToServer, map[string]any{"rate": rate})
	p.add("bandwidth", ToClient, map[string]any{"rate": rate})
}

// Latency holds back all that comes from the server.
func (p *Proxy) Latency(d time.Duration) {
	p.add("latency", ToClient, map[string]any{"latency": d.Milliseconds()})
}

// CutAfter ends each connection when so many bytes have gone in one direction. A connection that is open already
// counts from now on; with TLS the handshake counts, too.
func (p *Proxy) CutAfter(bytes int64, direction Direction) {
	p.add("limit_data", direction, map[string]any{"bytes": bytes})
}

// BlackHole swallows all in both directions: connections stay open, new ones are taken, and nothing answers.
func (p *Proxy) BlackHole() {
	p.add("timeout", ToServer, map[string]any{"timeout": 0})
	p.add("timeout", ToClient, map[string]any{"timeout": 0})
}

// Clear takes back Slow, Latency, CutAfter and BlackHole. Connections in a black hole end, since what they lost is
// gone.
func (p *Proxy) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proxy != nil {
		p.proxy.Toxics.ResetToxics(context.Background())
	}
}

func (p *Proxy) add(kind string, direction Direction, attributes map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proxy == nil {
		p.t.Errorf("%s: the proxy is cut", kind)
		return
	}
	p.toxics++
	toxic, err := json.Marshal(map[string]any{
		"name": fmt.Sprint(kind, p.toxics), "type": kind, "stream": direction, "toxicity": 1, "attributes": attributes,
	})
	if err != nil {
		p.t.Error(err)
		return
	}
	if _, err := p.proxy.Toxics.AddToxicJson(bytes.NewReader(toxic)); err != nil {
		p.t.Errorf("%s: %v", kind, err)
	}
}
