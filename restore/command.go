package restore

import (
	"net"
	"net/url"
	"strings"
)

// command starts a restored member. The membership in the data dir decides; the initial-* flags only have to agree
// with it, and are there so that a member whose dir is lost later does not make a cluster of its own.
func (p Plan) command(m Member, dataDir string) []string {
	peers, clients := m.PeerURLs, p.clientURLs(m.Name)
	return []string{
		"etcd", "--name", m.Name, "--data-dir", dataDir,
		"--listen-peer-urls", listen(peers), "--initial-advertise-peer-urls", strings.Join(peers, ","),
		"--listen-client-urls", listen(clients), "--advertise-client-urls", strings.Join(clients, ","),
		"--initial-cluster", p.InitialCluster(), "--initial-cluster-token", p.Token, "--initial-cluster-state", "existing",
	}
}

// listen is where to listen for what is advertised at urls. etcd binds to addresses and does not start with a name, so
// for a name it listens on all of them.
func listen(urls []string) string {
	var all []string
	for _, text := range urls {
		u, err := url.Parse(text)
		if err == nil && u.Port() != "" && u.Hostname() != "localhost" && net.ParseIP(u.Hostname()) == nil {
			u.Host = net.JoinHostPort("0.0.0.0", u.Port())
			text = u.String()
		}
		all = append(all, text)
	}
	return strings.Join(all, ",")
}

// clientURLs are those the member had, or etcd's default.
func (p Plan) clientURLs(name string) []string {
	known, _ := p.known()
	for _, m := range known {
		if m.Name == name && len(m.ClientURLs) > 0 {
			return m.ClientURLs
		}
	}
	return []string{"http://localhost:2379"}
}
