package reach_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/reach"
)

func TestControl(t *testing.T) {
	for _, own := range []string{
		"127.0.0.1:80", "127.8.9.10:80", "0.0.0.0:80", "0.1.2.3:80", "169.254.169.254:80", "224.0.0.1:80", "255.255.255.255:80", "168.63.129.16:80",
		"100.100.100.200:80", "[::1]:80", "[::]:80", "[fe80::1]:80", "[fe80::1%eth0]:80", "[ff02::1]:80", "[fd00:ec2::254]:80", "[fd00:ec2::254%lo]:80",
		"[::ffff:127.0.0.1]:80", "[::ffff:169.254.169.254]:80", "[::ffff:0.0.0.0]:80", "localhost:80", "", "127.0.0.1",
	} {
		err := reach.OtherHosts.Control("tcp", own, nil)
		if !errors.Is(err, reach.ErrOwn) || !strings.Contains(err.Error(), own) {
			t.Errorf("%q: %v", own, err)
		}
		err = reach.Anywhere.Control("tcp", own, nil)
		if err != nil {
			t.Errorf("%q, anywhere: %v", own, err)
		}
	}
	for _, other := range []string{"10.0.0.1:80", "192.168.1.1:80", "172.20.0.3:2379", "8.8.8.8:443", "[fd00::2]:80", "[2001:db8::1]:443", "[::ffff:10.0.0.1]:80"} {
		err := reach.OtherHosts.Control("tcp4", other, nil)
		if err != nil {
			t.Errorf("%q: %v", other, err)
		}
	}
	err := reach.OtherHosts.Control("unix", "10.0.0.1:80", nil)
	if !errors.Is(err, reach.ErrOwn) {
		t.Errorf("a socket: %v", err)
	}
}

// TestANameIsRefused dials a name that resolves to loopback.
func TestANameIsRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		reach reach.Reach
		want  error
	}{{reach.OtherHosts, reach.ErrOwn}, {reach.Anywhere, nil}} {
		dialer := net.Dialer{Control: test.reach.Control}
		conn, err := dialer.DialContext(context.Background(), "tcp4", "localhost:"+port)
		if !errors.Is(err, test.want) {
			t.Errorf("%q: %v", test.reach, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}
