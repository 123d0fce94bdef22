package restore

import "strings"

// command starts a restored member. The membership in the data dir decides; the initial-* flags only have to agree
// with it, and are there so that a member whose dir is lost later does not make a cluster of its own.
func (p Plan) command(m Member, dataDir string) []string {
	peers := strings.Join(m.PeerURLs, ",")
	clients := strings.Join(p.clientURLs(m.Name), ",")
	return []string{
		"etcd", "--name", m.Name, "--data-dir", dataDir,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--initial-cluster", p.InitialCluster(), "--initial-cluster-token", p.Token, "--initial-cluster-state", "existing",
	}
}

// clientURLs are those the member had, or etcd's default.
func (p Plan) clientURLs(name string) []string {
	if p.Backup != nil {
		for _, m := range p.Backup.Members {
			if m.Name == name && len(m.ClientURLs) > 0 {
				return m.ClientURLs
			}
		}
	}
	return []string{"http://localhost:2379"}
}
