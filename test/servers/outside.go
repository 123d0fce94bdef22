package servers

import (
	"net"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/reach"
)

// ListenOutside listens at an address of this host that other hosts reach. It skips the test if there is none.
func ListenOutside(t testing.TB) net.Listener {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		at, ok := one.(*net.IPNet)
		if !ok || at.IP.To4() == nil || reach.OtherHosts.Control("tcp", at.IP.String()+":1", nil) != nil {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort(at.IP.String(), "0"))
		if err == nil {
			t.Cleanup(func() { listener.Close() })
			return listener
		}
	}
	t.Skip("this host has no address that other hosts reach")
	return nil
}
