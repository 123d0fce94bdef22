//go:build !linux

package cluster

import "net"

func waitForMany(net.Conn, int) {}
