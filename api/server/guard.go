package server

import (
	"context"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

// Limits for one client, and for all of them together.
const (
	maxBody    = 64 << 10         // bytes
	perSecond  = 20               // requests of one client, in the long run
	burst      = 100              // requests at once of a client that was idle
	maxAtOnce  = 64               // concurrent requests of all clients, without probes and the page
	maxClients = 4096             // whose rate limiters are kept at a time
	storeWait  = time.Minute      // the time to answer a request of the API, which may ask the store
	pageWait   = 15 * time.Second // the time to send one of the page's files
)

// guard passes the requests that access permits to inner, within the limits.
type guard struct {
	access Access
	inner  http.Handler
	cross  *http.CrossOriginProtection
	places *semaphore.Weighted

	mu      sync.Mutex
	clients map[string]*rate.Limiter
}

func newGuard(a Access, inner http.Handler) *guard {
	return &guard{
		access: a, inner: inner, cross: http.NewCrossOriginProtection(), places: semaphore.NewWeighted(maxAtOnce),
		clients: map[string]*rate.Limiter{},
	}
}

// ServeHTTP checks r, the cheapest checks first, and passes it on.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy",
		"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	if g.access.open() && !isLoopbackName(r.Host) {
		writeError(w, &failure{http.StatusForbidden, "unexpected Host header", "use http://127.0.0.1 or http://localhost"})
		return
	}
	if isProbe(r.URL.Path) {
		g.inner.ServeHTTP(w, r)
		return
	}
	who, err := g.access.visitor(r)
	if !g.limiter(g.client(r, who)).Allow() {
		header.Set("Retry-After", "1")
		writeError(w, fail(http.StatusTooManyRequests, "more than %d requests a second", perSecond))
		return
	}
	if isPage(r.URL.Path) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pageWait)) // a test's ResponseWriter has no deadline
		g.inner.ServeHTTP(w, r)
		return
	}
	if err == nil {
		err = g.check(r, who)
	}
	if err != nil {
		failed, ok := err.(*failure)
		if ok && failed.status == http.StatusUnauthorized {
			header.Set("WWW-Authenticate", `Bearer realm="etcd-dr"`) // with Basic, the browser would ask for a password before the page can
		}
		writeError(w, err)
		return
	}
	// This limit is checked after the login: clients that are not logged in must not use it up.
	if !g.places.TryAcquire(1) {
		header.Set("Retry-After", "1")
		writeError(w, fail(http.StatusServiceUnavailable, "%d requests are already being answered", maxAtOnce))
		return
	}
	defer g.places.Release(1)
	ctx, cancel := context.WithTimeout(r.Context(), storeWait)
	defer cancel()
	header.Set(roleHeader, who.role.String())
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	g.inner.ServeHTTP(w, withVisitor(r.WithContext(ctx), who))
}

// roleHeader contains the role of the client, so that the page shows no button for a request that the service would refuse.
const roleHeader = "Etcd-Dr-Role"

// isPage reports whether path is one of the page's files. They contain no data and need no login: the page requests its data with
// the token that the operator enters.
func isPage(path string) bool { return path == "/" || strings.HasPrefix(path, "/assets/") }

// check returns an error if who must not send r. A page of another site can make a browser send requests with the operator's
// credentials, but only with an Origin header, and not with the content type of JSON.
func (g *guard) check(r *http.Request, who visitor) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if who.role < operator {
		return fail(http.StatusForbidden, "%s has only the role read", who.name)
	}
	err := g.cross.Check(r)
	if err != nil {
		return fail(http.StatusForbidden, "the request comes from another site: %v", err)
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return fail(http.StatusUnsupportedMediaType, "send Content-Type: application/json")
	}
	if r.ContentLength > maxBody {
		return errTooLarge
	}
	return nil
}

var errTooLarge = fail(http.StatusRequestEntityTooLarge, "more than %d bytes were sent", maxBody)

// isLoopbackName reports whether host is a name or address of loopback. An attacker's page that uses DNS rebinding reaches the
// service under the name of the attacker's site.
func isLoopbackName(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	if len(name) > 1 && name[0] == '[' && name[len(name)-1] == ']' {
		name = name[1 : len(name)-1]
	}
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.IsLoopback()
}

// client returns the key of r's rate limit: the name of the login, else the IPv4 address or the IPv6 /64 (a host usually owns a whole
// /64). Without logins all clients are on this host, and each connection has its own limit, so that one client cannot exhaust the
// limit of the others.
func (g *guard) client(r *http.Request, who visitor) string {
	switch {
	case g.access.open():
		return r.RemoteAddr
	case who.role > 0:
		return who.role.String() + " " + who.name
	}
	address, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip, bits := address.Addr().Unmap().WithZone(""), 32
	if ip.Is6() {
		bits = 64
	}
	from, _ := ip.Prefix(bits)
	return from.String()
}

// limiter returns the rate limiter of a client.
func (g *guard) limiter(client string) *rate.Limiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	limit, ok := g.clients[client]
	if !ok {
		if len(g.clients) >= maxClients {
			g.evictIdle()
		}
		limit = rate.NewLimiter(perSecond, burst)
		g.clients[client] = limit
	}
	return limit
}

// evictIdle drops the idle clients, or all if none is idle.
func (g *guard) evictIdle() {
	now := time.Now()
	for client, limit := range g.clients {
		if limit.TokensAt(now) >= burst {
			delete(g.clients, client)
		}
	}
	if len(g.clients) >= maxClients {
		clear(g.clients)
	}
}
