package plan

import (
	"fmt"
	"net"
	"net/url"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Old is the cluster that the restored one replaces. None of its members may run any more.
type Old struct {
	Backup     catalog.ID       `json:"backup,omitempty"`     // the one whose manifest names Members: the newest of the restored history that is not after the target
	Members    []catalog.Member `json:"members,omitempty"`    // none if neither a manifest nor a disk names them
	ClusterIDs []string         `json:"clusterIDs,omitempty"` // of all clusters that the repository has under the name
	ClientURLs []string         `json:"clientURLs,omitempty"` // those of Members, which are contacted before anything is restored
}

const (
	maxAsked   = 64     // most URLs that are asked, all at once
	clientPort = "2379" // of a member whose client URLs are not known
)

// port is the scheme and the number of a server's port.
type port struct{ scheme, number string }

// defaultPorts has both schemes, since a member's peer URL and client URL may have different ones.
var defaultPorts = []port{{"http", clientPort}, {"https", clientPort}}

// oldCluster returns the members of the old cluster, and the ids of all clusters in c. It leaves ClientURLs to urlsToAsk.
func oldCluster(c catalog.Catalog, r route) Old {
	old := Old{ClusterIDs: knownClusterIDs(c)}
	switch {
	case r.isNone():
		return Old{}
	case r.members.ID != "":
		old.Backup, old.Members = r.members.ID, r.members.Members
		if r.members.Origin != nil && r.members.ClusterID != "" {
			old.ClusterIDs = append(old.ClusterIDs, r.members.ClusterID)
		}
	case r.salvage != nil:
		old.Members = r.salvage.Members
	}
	if r.salvage != nil {
		old.ClusterIDs = append(old.ClusterIDs, r.salvage.ClusterID)
	}
	return old
}

// urlsToAsk returns the client URLs at which an old member may answer, each once: those of the old members, etcd's default port
// on the hosts of new members, the URLs in all manifests, newest first, and the ports of all these on the hosts of new members.
func urlsToAsk(c catalog.Catalog, old []catalog.Member, members []Member) []string {
	known := clientURLs(old)
	var others []string
	for _, b := range c.Backups {
		others = append(others, clientURLs(b.Members)...)
	}
	named := slices.Concat(known, others)
	hosts := newHosts(members, named)
	seen := map[string]bool{}
	all := slices.Concat(known, urlsAt(hosts, defaultPorts), others, urlsAt(hosts, portsOf(named)))
	return slices.DeleteFunc(all, func(u string) bool {
		again := seen[u]
		seen[u] = true
		return again
	})
}

// urlNotes returns a note if there are more URLs than are asked.
func urlNotes(urls []string) []string {
	if len(urls) <= maxAsked {
		return nil
	}
	return []string{fmt.Sprintf("old members may have %d client URLs: only %d of them, those of the newest backups first, are asked whether a member still answers",
		len(urls), maxAsked)}
}

func clientURLs(members []catalog.Member) (urls []string) {
	for _, m := range members {
		urls = append(urls, m.ClientURLs...)
	}
	return urls
}

// newHosts returns the hosts of the members' peer URLs, each once, except the hosts of known URLs.
func newHosts(members []Member, known []string) (hosts []string) {
	seen := map[string]bool{"": true}
	for _, text := range known {
		seen[hostOf(text)] = true
	}
	for _, m := range members {
		for _, peer := range m.PeerURLs {
			host := hostOf(peer)
			if !seen[host] {
				seen[host] = true
				hosts = append(hosts, host)
			}
		}
	}
	return hosts
}

func urlsAt(hosts []string, ports []port) (urls []string) {
	for _, host := range hosts {
		for _, p := range ports {
			urls = append(urls, p.scheme+"://"+net.JoinHostPort(host, p.number))
		}
	}
	return urls
}

// portsOf returns the ports in URLs, each once.
func portsOf(urls []string) (ports []port) {
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Port() == "" {
			continue
		}
		p := port{u.Scheme, u.Port()}
		if !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	return ports
}

// hostOf returns the host in a URL; "" if there is none.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// OwnersOf returns the names of the members, old and new, that may answer at a client URL: those that advertise it, or else those on its host.
func (p Plan) OwnersOf(at string) []string {
	type known struct {
		name          string
		clients, urls []string
	}
	var members []known
	for _, m := range p.Old.Members {
		members = append(members, known{m.Name, m.ClientURLs, slices.Concat(m.ClientURLs, m.PeerURLs)})
	}
	for _, m := range p.Members {
		members = append(members, known{m.Name, nil, m.PeerURLs})
	}
	var exact, near []string
	host := hostOf(at)
	for _, m := range members {
		if slices.Contains(m.clients, at) {
			exact = append(exact, m.name)
		}
		if slices.ContainsFunc(m.urls, func(u string) bool { return host != "" && hostOf(u) == host }) {
			near = append(near, m.name)
		}
	}
	if len(exact) > 0 {
		near = exact
	}
	return slices.Compact(slices.Sorted(slices.Values(near)))
}

// IsStranger reports whether a server that answers is certainly not of the old cluster: its cluster id is in no backup, and none of
// its members is an old or a new one. A server without a cluster id may be of the old one.
func (p Plan) IsStranger(clusterID string, members []catalog.Member) bool {
	isServers := func(id string) bool { return catalog.SameClusterID(id, clusterID) }
	if clusterID == "" || slices.ContainsFunc(p.Old.ClusterIDs, isServers) {
		return false
	}
	ours := slices.Concat(p.Members, voters(p.Old.Members))
	return !slices.ContainsFunc(members, func(m catalog.Member) bool {
		return slices.ContainsFunc(ours, func(our Member) bool { return our.Name == m.Name && overlap(our.PeerURLs, m.PeerURLs) })
	})
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(u string) bool { return slices.Contains(b, u) })
}
