package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// Ports are below the range that the kernel uses for outgoing connections, so that no such connection can occupy a port
// between the moment it was found free and the moment a server listens on it.
const (
	firstPort = 12000
	blockSize = 500
	blocks    = 40
)

var ports struct {
	mu   sync.Mutex
	free []int      // of this test binary, in random order
	held []*os.File // keep the locks of its blocks until it ends
}

// FreePort returns a TCP port on which nothing listens on 127.0.0.1. No other call has returned it, in this test binary or
// in another one of this user that still runs: a server that is down for a while gets its port back.
func FreePort() (int, error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for {
		for len(ports.free) > 0 {
			port := ports.free[0]
			ports.free = ports.free[1:]
			if canListen(port) {
				return port, nil
			}
		}
		err := lockBlock()
		if err != nil {
			return 0, err
		}
	}
}

// lockBlock adds the ports of a block that no running test binary uses.
func lockBlock() error {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("etcd-dr-ports-%d", os.Getuid()))
	err := os.MkdirAll(dir, 0o700)
	if err != nil {
		return err
	}
	for _, n := range rand.Perm(blocks) {
		file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(n)), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			file.Close()
			continue
		}
		ports.held = append(ports.held, file)
		for _, i := range rand.Perm(blockSize) {
			ports.free = append(ports.free, firstPort+n*blockSize+i)
		}
		return nil
	}
	return fmt.Errorf("all ports from %d on are in use by other tests: the locks are in %s", firstPort, dir)
}

func canListen(port int) bool {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
