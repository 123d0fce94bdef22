package cluster

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// waitForMany has the kernel call a connection readable only when so many bytes are there: else Go's runtime is woken for
// each packet even while nobody reads. Where that cannot be had it costs CPU, and nothing else.
func waitForMany(conn net.Conn, bytes int) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes)
	})
}
