package cluster_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/reach"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

func TestKnock(t *testing.T) {
	t.Parallel()
	plain, etcd := startEtcd(t, nil)
	withUsers, _ := startEtcd(t, nil)
	enableUsers(t, clientOf(t, withUsers, nil))
	encrypted, _ := startEtcd(t, overTLS(t, servers.NewCertificates(t)))
	hanging, _ := silent(t)
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	webTLS := httptest.NewTLSServer(http.NotFoundHandler())
	defer webTLS.Close()
	id := fmt.Sprintf("%x", uint64(etcd.Server.Cluster().ID()))
	self := etcd.Server.Cluster().Members()[0]
	members := []catalog.Member{{
		ID: self.ID.String(), Name: self.Name, PeerURLs: self.PeerURLs, ClientURLs: self.ClientURLs,
	}}

	wants := []struct {
		name string
		cluster.Answer
	}{
		{"etcd", cluster.Answer{URL: plain, Alive: true, ClusterID: id, Members: members, Revision: 1}},
		{"etcd with users", cluster.Answer{URL: withUsers, Alive: true, ClusterID: "?"}},
		{"etcd that wants client certificates", cluster.Answer{URL: encrypted, Alive: true}},
		{"etcd over TLS, asked in plain", cluster.Answer{URL: strings.Replace(encrypted, "https", "http", 1)}},
		{"plain etcd, asked over TLS", cluster.Answer{URL: strings.Replace(plain, "http", "https", 1)}},
		{"nothing", cluster.Answer{URL: servers.FreeURLs(t, 1)[0]}},
		{"nothing over TLS", cluster.Answer{URL: servers.FreeTLSURLs(t, 1)[0]}},
		{"one that hangs", cluster.Answer{URL: "http://" + hanging, Alive: true}},
		{"one that hangs over TLS", cluster.Answer{URL: "https://" + hanging, Alive: true}},
		{"TLS that refuses every version", cluster.Answer{URL: "https://" + refusingTLS(t), Alive: true}},
		{"one that hangs up", cluster.Answer{URL: "http://" + saying(t, "")}},
		{"one that hangs up over TLS", cluster.Answer{URL: "https://" + saying(t, "")}},
		{"a web server", cluster.Answer{URL: web.URL}},
		{"a banner", cluster.Answer{URL: "http://" + saying(t, "220 mail.example.org ESMTP\r\n")}},
		{"a banner over TLS", cluster.Answer{URL: "https://" + saying(t, "220 mail.example.org ESMTP\r\n")}},
		{"another TLS server", cluster.Answer{URL: webTLS.URL, Alive: true}},
		{"no URL", cluster.Answer{URL: "http://a b:\x00"}},
		{"no host", cluster.Answer{URL: "http://"}},
		{"a scheme of no use", cluster.Answer{URL: "ftp://127.0.0.1:21"}},
	}
	var urls []string
	for _, want := range wants {
		urls = append(urls, want.URL)
	}
	answers := cluster.Knock(t.Context(), urls, reach.Anywhere)
	for i, want := range wants {
		got := answers[i]
		if want.ClusterID == "?" { // versions differ in whether they report it
			got.ClusterID, got.Members, got.Revision = "?", nil, 0
		}
		diff := cmp.Diff(want.Answer, got)
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.name, diff)
		}
	}
}

// A manifest in a tenant's repository may name any URL.
func TestKnockStaysWithinReach(t *testing.T) {
	t.Parallel()
	plain, _ := startEtcd(t, nil)
	hanging, _ := silent(t)
	for _, answer := range cluster.Knock(t.Context(), []string{plain, "http://" + hanging, "https://" + hanging}, reach.OtherHosts) {
		if answer.Alive {
			t.Errorf("connected to %s", answer.URL)
		}
	}
}

// refusingTLS returns the address of a server that answers every handshake with an alert.
func refusingTLS(t *testing.T) string {
	t.Helper()
	files := servers.NewCertificates(t)
	pair, err := tls.LoadX509KeyPair(files.ServerCert, files.ServerKey)
	if err != nil {
		t.Fatal(err)
	}
	old := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}
	listener := tls.NewListener(listen(t), old)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake() // the refusal is the purpose of the test
			conn.Close()
		}
	}()
	return listener.Addr().String()
}

// saying sends a banner to every client and then reads nothing; without a banner it closes the connection.
func saying(t *testing.T, banner string) string {
	t.Helper()
	listener := listen(t)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, banner)
			if banner == "" {
				conn.Close()
			} else {
				t.Cleanup(func() { conn.Close() })
			}
		}
	}()
	return listener.Addr().String()
}

// TestKnockAsksNoProxy checks that a proxy that cannot reach an old cluster does not make it look dead. A process reads
// its proxies from the environment once, and never uses them for loopback addresses, so the test needs a child and
// 0.0.0.0, which is loopback too.
func TestKnockAsksNoProxy(t *testing.T) {
	const mark = "ETCD_DR_KNOCK_AT"
	url := os.Getenv(mark)
	if url != "" {
		answer := cluster.Knock(t.Context(), []string{url}, reach.Anywhere)[0]
		if !answer.Alive || answer.ClusterID != "9" {
			t.Errorf("through a dead proxy: %+v", answer)
		}
		return
	}
	fake := &fakeMember{clusterID: 9, memberID: 1}
	url = "http://" + strings.Replace(fake.serve(t), "127.0.0.1", "0.0.0.0", 1)
	dead := servers.FreeURLs(t, 1)[0]
	child := exec.Command(os.Args[0], "-test.run=^TestKnockAsksNoProxy$")
	child.Env = append(os.Environ(), mark+"="+url, "HTTPS_PROXY="+dead, "HTTP_PROXY="+dead, "NO_PROXY=")
	out, err := child.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
