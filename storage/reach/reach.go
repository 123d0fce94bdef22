// Package reach bounds the addresses that connections may lead to. The settings of a tenant must not make a service connect to a
// server on its own host, or to the metadata service of its cloud. The bound holds for addresses, not for names: it is checked when a
// connection is dialled, after DNS, a redirect or a member's list of URLs has named the address.
package reach

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Reach selects the addresses that connections may lead to. The zero Reach is Anywhere.
type Reach string

// The values of Reach.
const (
	Anywhere   Reach = ""
	OtherHosts Reach = "other hosts" // no address for which IsOwn is true
)

// ErrOwn is the error of a connection that Control has refused.
var ErrOwn = fault.New(fault.Usage, "an address of this host or its link")

// Control is a net.Dialer.Control function. It returns an error that matches ErrOwn if r does not allow the address.
func (r Reach) Control(network, address string, _ syscall.RawConn) error {
	if r == Anywhere {
		return nil
	}
	at, err := netip.ParseAddrPort(address)
	if err == nil && strings.HasPrefix(network, "tcp") && !IsOwn(at.Addr()) {
		return nil
	}
	return fmt.Errorf("%s is %w: use one that other hosts reach, or let the operator allow it with --allow-loopback", address, ErrOwn)
}

// metadata are the addresses of clouds' metadata services that are not link-local.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("100.100.100.200"), // Alibaba
}

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8") // Linux leads 0.0.0.0 to loopback (RFC 1122, 3.2.1.3)
	broadcast   = netip.MustParseAddr("255.255.255.255")
)

// IsOwn reports whether an address leads to this host or its link, or to a cloud's metadata service. A v4-mapped address counts as
// the IPv4 address in it.
func IsOwn(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	return ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip == broadcast ||
		thisNetwork.Contains(ip) || slices.Contains(metadata, ip)
}
