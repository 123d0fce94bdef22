package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports are taken from below the range that the kernel gives to outgoing connections, so that none of those can sit on a port between
// the moment it was found free and the moment a server listens on it.
const (
	firstPort = 12000
	lastPort  = 31999
)

var (
	portsMu sync.Mutex
	// portsGiven keeps tests of one binary that run in parallel from getting the same port.
	portsGiven = map[int]bool{}
)

// FreeURLs returns n different http URLs on loopback on which nothing listens. A restore needs the members' peer URLs before they start.
func FreeURLs(t testing.TB, n int) []string {
	t.Helper()
	return freeURLs(t, "http", n)
}

// FreeTLSURLs is FreeURLs with https, for members that speak TLS.
func FreeTLSURLs(t testing.TB, n int) []string {
	t.Helper()
	return freeURLs(t, "https", n)
}

func freeURLs(t testing.TB, scheme string, n int) []string {
	t.Helper()
	var urls []string
	for range n {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, fmt.Sprintf("%s://127.0.0.1:%d", scheme, port))
	}
	return urls
}

func freePort() (int, error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if portsGiven[port] || !canListen(port) {
			continue
		}
		portsGiven[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("no free port between %d and %d in 1000 tries", firstPort, lastPort)
}

func canListen(port int) bool {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
