package plan

import (
	"net"
	"net/url"
	"strings"
)

// Command returns the command that starts a restored member. etcd takes the membership from the data dir; the initial-* flags agree
// with it, and keep a member whose data dir is lost later from beginning a cluster of its own.
func (p Plan) Command(m Member, dataDir string) []string {
	peers, clients := m.PeerURLs, p.clientURLs(m)
	dirs := []string{"etcd", "--name", m.Name, "--data-dir", dataDir}
	if p.Into.WALDir != "" {
		dirs = append(dirs, "--wal-dir", p.Into.WALDir)
	}
	return append(dirs,
		"--listen-peer-urls", listen(peers), "--initial-advertise-peer-urls", strings.Join(peers, ","),
		"--listen-client-urls", listen(clients), "--advertise-client-urls", strings.Join(clients, ","),
		"--initial-cluster", p.InitialCluster(), "--initial-cluster-token", p.Token, "--initial-cluster-state", "existing")
}

// listen returns the URLs to listen on for the advertised urls. etcd binds to addresses only, so a host name becomes
// 0.0.0.0.
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

// clientURLs returns the client URLs that m had on the same host; else etcd's default port on the host of its peer URL. If several
// members share the host, the operator must choose the ports.
func (p Plan) clientURLs(m Member) []string {
	host, alone := hostOf(m.PeerURLs[0]), true
	for _, old := range p.Old.Members {
		if old.Name == m.Name && len(old.ClientURLs) > 0 && len(old.PeerURLs) > 0 && hostOf(old.PeerURLs[0]) == host {
			return old.ClientURLs
		}
	}
	for _, other := range p.Members {
		alone = alone && (other.Name == m.Name || hostOf(other.PeerURLs[0]) != host)
	}
	scheme, _, _ := strings.Cut(m.PeerURLs[0], "://")
	if !alone {
		return []string{scheme + "://" + net.JoinHostPort(host, "CLIENT_PORT")}
	}
	return []string{scheme + "://" + net.JoinHostPort(host, clientPort)}
}
