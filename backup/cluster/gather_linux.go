package cluster

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// waitForMany makes the kernel report a connection as readable only when so many bytes have arrived. Without this, each
// packet wakes Go's runtime even if no goroutine reads. Errors are ignored: a failure only costs CPU.
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
