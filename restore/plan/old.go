package plan

import (
	"cmp"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Old is the cluster that is replaced: none of its members may run any more.
type Old struct {
	Backup     catalog.ID       `json:"backup,omitempty"`  // whose manifest names Members: the newest of that history up to the target
	Members    []catalog.Member `json:"members,omitempty"` // none where neither a manifest nor a disk names them
	ClusterIDs []string         `json:"clusterIDs,omitempty"`
	ClientURLs []string         `json:"clientURLs,omitempty"` // that are asked before anything is restored
}

const (
	maxAsked   = 64     // URLs, all asked at once
	clientPort = "2379" // of a member whose client URLs are not known
)

// setOld finds who the members were, and where one of them, or of a cluster that was restored since, may still answer.
func (p *Plan) setOld(c catalog.Catalog, r route) {
	p.Old.ClusterIDs = knownClusterIDs(c)
	switch {
	case r.members.ID != "":
		p.Old.Backup, p.Old.Members = r.members.ID, r.members.Members
	case r.salvage != nil:
		p.Old.Members = r.salvage.Members
	}
	if r.salvage != nil {
		p.Old.ClusterIDs = append(p.Old.ClusterIDs, r.salvage.ClusterID)
	}
}

// setAsked lists the URLs to ask: client URLs of the old members first, then those of the new members' hosts, then those
// in all other manifests, newest first.
func (p *Plan) setAsked(c catalog.Catalog) {
	known := clientURLs(p.Old.Members)
	var others []string
	for _, b := range c.Backups {
		others = append(others, clientURLs(b.Members)...)
	}
	all := slices.Concat(known, p.guessed(slices.Concat(known, others)), others)
	seen := map[string]bool{}
	all = slices.DeleteFunc(all, func(u string) bool {
		again := seen[u]
		seen[u] = true
		return again
	})
	if len(all) > maxAsked {
		p.note("the backups name %d client URLs: whether an old member still answers is asked at %d of them, the newest", len(all), maxAsked)
		all = all[:maxAsked]
	}
	p.Old.ClientURLs = all
}

func clientURLs(members []catalog.Member) (urls []string) {
	for _, m := range members {
		urls = append(urls, m.ClientURLs...)
	}
	return urls
}

// guessed returns client URLs on those hosts of the new members where none is known: a peer's scheme does not tell that of
// its clients.
func (p *Plan) guessed(known []string) (urls []string) {
	hosts := map[string]bool{}
	for _, text := range known {
		hosts[hostOf(text)] = true
	}
	for _, m := range p.Members {
		for _, peer := range m.PeerURLs {
			host := hostOf(peer)
			if host == "" || hosts[host] {
				continue
			}
			hosts[host] = true
			at := net.JoinHostPort(host, clientPort)
			urls = append(urls, "http://"+at, "https://"+at)
		}
	}
	return urls
}

// hostOf returns the host in a URL, "" if there is none.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// noteLaterMembers notes that a backup from after the target names other members.
func (p *Plan) noteLaterMembers(c catalog.Catalog, named catalog.Backup) {
	for _, b := range c.Backups { // newest first
		if !b.Started.After(named.Started) {
			return
		}
		if sameVoters(b.Members, named.Members) {
			continue
		}
		p.note("the members are those of %s (backup %s); backup %s of %s names others: %s. --initial-cluster chooses",
			named.Started.UTC().Format(time.RFC3339), named.ID, b.ID, b.Started.UTC().Format(time.RFC3339),
			Plan{Members: voters(b.Members)}.InitialCluster())
		return
	}
}

func sameVoters(a, b []catalog.Member) bool {
	return slices.EqualFunc(sorted(voters(a)), sorted(voters(b)), func(a, b Member) bool {
		return a.Name == b.Name && slices.Equal(slices.Sorted(slices.Values(a.PeerURLs)), slices.Sorted(slices.Values(b.PeerURLs)))
	})
}

func voters(members []catalog.Member) (all []Member) {
	for _, m := range members {
		if !m.Learner {
			all = append(all, Member{Name: m.Name, PeerURLs: m.PeerURLs})
		}
	}
	return all
}

func sorted(members []Member) []Member {
	return slices.SortedFunc(slices.Values(members), func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
}

// IsStranger reports whether a server that answers is surely not of the old cluster: its cluster id is in no backup, and none of
// its members is one of the old or the new ones. A server without a cluster id may be of the old one.
func (p Plan) IsStranger(clusterID string, members []catalog.Member) bool {
	ids := func(id string) bool { return catalog.SameClusterID(id, clusterID) }
	if clusterID == "" || slices.ContainsFunc(p.Old.ClusterIDs, ids) {
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
