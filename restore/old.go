package restore

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage"
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

// ask refuses while a member of the old cluster, or of one that was restored from it, answers: two clusters that believe
// they are the same one are worse than none.
func (r *run) ask(ctx context.Context) error {
	if r.plan.OldIsDead {
		return nil
	}
	if err := r.refuseHeld(); err != nil {
		return err
	}
	for _, answer := range cluster.Knock(ctx, r.plan.Old.ClientURLs) {
		switch {
		case !answer.Alive:
		case r.plan.isStranger(answer):
			r.say("ask", storage.Note, "another cluster, %s, answers at %s", answer.ClusterID, answer.URL)
		default:
			return fmt.Errorf("%w: the old cluster still answers at %s: stop every old member first, or say --old-is-dead if that is not it",
				ErrRefused, answer.URL)
		}
	}
	return nil
}

// isStranger reports whether an etcd that answers is surely not of the old cluster: its cluster id is in no backup, and none
// of its members is one of the old or the new ones. A server that does not name its cluster may be the old one.
func (p Plan) isStranger(a cluster.Answer) bool {
	ids := func(id string) bool { return catalog.SameClusterID(id, a.ClusterID) }
	if a.ClusterID == "" || slices.ContainsFunc(p.Old.ClusterIDs, ids) {
		return false
	}
	ours := slices.Concat(p.Members, voters(p.Old.Members))
	return !slices.ContainsFunc(a.Members, func(m catalog.Member) bool {
		return slices.ContainsFunc(ours, func(our Member) bool { return our.Name == m.Name && overlap(our.PeerURLs, m.PeerURLs) })
	})
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(u string) bool { return slices.Contains(b, u) })
}

// refuseHeld looks once more, for a member may have been started since the plan was made.
func (r *run) refuseHeld() error {
	if r.plan.Salvage == nil {
		return nil
	}
	for _, d := range r.plan.Salvage.Disks {
		held, err := salvage.Running(d.Dir)
		if err != nil {
			return err
		}
		if held {
			return refusedRunning(d.Dir)
		}
	}
	return nil
}
