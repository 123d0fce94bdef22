package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// addressTimeout bounds the connection to one address of several: a pod that is away does not answer at all.
const addressTimeout = 5 * time.Second

// Dial connects the test's own process to an address in the cluster, such as that of a pod. The host may be a name of the cluster's DNS, whose
// addresses are tried in turn: those of a headless Service may include a pod that does not listen.
func (c *Cluster) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addresses, err := c.resolver().LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, a := range addresses {
		conn, err := c.dialWithin(ctx, network, net.JoinHostPort(a, port))
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

func (c *Cluster) dialWithin(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, addressTimeout)
	defer cancel()
	return c.dial(ctx, network, address)
}

// resolver resolves the names of the cluster.
func (c *Cluster) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return c.dial(ctx, network, net.JoinHostPort(controlPlane.String(), "53"))
	}}
}

// dial connects to an IP address from the network namespace of the control plane. A connection remains in the namespace in which it began,
// whichever thread uses it.
func (c *Cluster) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock it: the thread ends with this goroutine, in the other namespace
		err = c.enterNetwork()
		if err == nil {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
		}
	}()
	<-done
	return conn, err
}

// enterNetwork moves the thread of the caller into the network namespace of the control plane.
func (c *Cluster) enterNetwork() error {
	pid, err := os.ReadFile(filepath.Join(c.state, "pid"))
	if err != nil {
		return err
	}
	namespace, err := os.Open(fmt.Sprintf("/proc/%s/ns/net", strings.TrimSpace(string(pid))))
	if err != nil {
		return err
	}
	defer namespace.Close()
	return unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
}
