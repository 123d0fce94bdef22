package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are below the range that the kernel uses for outgoing connections, so that no such connection can occupy a port
// between the moment it was found free and the moment a server listens on it.
const (
	firstPort = 12000
	lastPort  = 31999
)

var (
	portsMu sync.Mutex
	// portsGiven keeps tests of one binary that run in parallel from getting the same port.
	portsGiven = map[int]bool{}
)

// FreePort returns a TCP port on which nothing listens on 127.0.0.1, and which no other call in this test binary has
// returned. Another process may still take it before the caller's server does.
func FreePort() (int, error) {
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
