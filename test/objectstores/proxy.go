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

	"github.com/etcd-dr/etcd-dr/test/process"
)

// Direction is one of a connection's two.
type Direction string

// The directions of data through a Proxy.
const (
	ToServer Direction = "upstream"
	ToClient Direction = "downstream"
)

// Proxy is a network between a client and a server that tests can break. It passes bytes without interpreting them, so
// TLS passes through. Its faults affect open connections and new ones, each on its own.
type Proxy struct {
	Address string // host:port for the clients

	t        testing.TB
	upstream string
	mu       sync.Mutex
	proxy    *toxiproxy.Proxy
	toxics   int
}

// quiet keeps toxiproxy from writing through zerolog's global logger, which it does with every logger it is given.
var quiet = sync.OnceFunc(func() { zerolog.SetGlobalLevel(zerolog.Disabled) })

// NewProxy starts a proxy in front of the server at endpoint: a URL, of which only the host is used, or host:port. It
// ends with the test.
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
	port, err := process.FreePort() // stays its own while it is cut
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: fmt.Sprint("127.0.0.1:", port), t: t, upstream: upstream}
	err = p.start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Clear()
		p.Cut()
	})
	return p
}

// start listens at the proxy's previous address.
func (p *Proxy) start() error {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, "test", p.Address, p.upstream)
	err := proxy.Start()
	if err != nil {
		return err
	}
	p.proxy, p.Address = proxy, proxy.Listen
	return nil
}

// Cut closes every connection and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proxy != nil {
		p.proxy.Stop()
		p.proxy = nil
	}
}

// Restore listens again after Cut, without any faults.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proxy != nil {
		return
	}
	err := p.start()
	if err != nil {
		p.t.Errorf("restore the proxy: %v", err)
	}
}

// Retarget makes the proxy lead to the server at host:port. Open connections end.
func (p *Proxy) Retarget(upstream string) {
	p.Cut()
	p.mu.Lock()
	p.upstream = upstream
	p.mu.Unlock()
	p.Restore()
}

// Slow limits each connection to so many bytes per second in each direction, at least 1024.
func (p *Proxy) Slow(bytesPerSecond int) {
	rate := max(bytesPerSecond/1024, 1)
	p.add("bandwidth", ToServer, map[string]any{"rate": rate})
	p.add("bandwidth", ToClient, map[string]any{"rate": rate})
}

// Latency delays all data from the server.
func (p *Proxy) Latency(d time.Duration) {
	p.add("latency", ToClient, map[string]any{"latency": d.Milliseconds()})
}

// CutAfter ends each connection after so many bytes in one direction. For an open connection counting starts now; with
// TLS the handshake counts too.
func (p *Proxy) CutAfter(bytes int64, direction Direction) {
	p.add("limit_data", direction, map[string]any{"bytes": bytes})
}

// BlackHole drops all data in both directions: connections stay open, new ones are accepted, and nothing answers.
func (p *Proxy) BlackHole() {
	p.add("timeout", ToServer, map[string]any{"timeout": 0})
	p.add("timeout", ToClient, map[string]any{"timeout": 0})
}

// Clear removes Slow, Latency, CutAfter and BlackHole. Connections in a black hole end, because their data is lost.
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
	_, err = p.proxy.Toxics.AddToxicJson(bytes.NewReader(toxic))
	if err != nil {
		p.t.Errorf("%s: %v", kind, err)
	}
}
