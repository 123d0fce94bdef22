// Package serving checks through their client ports that the members of a cluster serve the data that a restore has built.
package serving

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Check is done if the members of h, and no others, form the cluster of b, have a leader and no alarm, are at its revision or later, and
// agree; those that are away need not answer. Then it returns the revision and the hash. If b is zero, it is done if any cluster answers that has a leader. access is how to
// connect; its endpoints are replaced by those of h.
func Check(ctx context.Context, access cluster.Config, h handoff.Handoff, b handoff.Built) (handoff.Progress, error) {
	access.Endpoints = h.Endpoints
	c, err := cluster.Connect(ctx, access)
	silent, ok := errors.AsType[*cluster.SilentError](err)
	switch {
	case ok:
		return wait("no member answers: %s", describe(silent.Endpoints)), nil
	case err != nil:
		return handoff.Progress{}, err
	}
	defer c.Close()
	if b.ClusterID == "" {
		return leads(c), nil
	}
	why := difference(c, h.Members, b)
	if why != "" {
		return handoff.Progress{Waiting: why}, nil
	}
	return agree(ctx, c)
}

func wait(format string, args ...any) handoff.Progress {
	return handoff.Progress{Waiting: fmt.Sprintf(format, args...)}
}

func leads(c *cluster.Cluster) handoff.Progress {
	if !c.Quorum {
		return wait("the members have no leader")
	}
	return handoff.Progress{Done: true}
}

// difference returns how c differs from the cluster that b describes, with all of its members; "" if it does not.
func difference(c *cluster.Cluster, members []handoff.Member, b handoff.Built) string {
	id := fmt.Sprintf("%x", c.ID)
	switch {
	case !catalog.SameClusterID(id, b.ClusterID):
		return fmt.Sprintf("cluster %s answers at %s, expected the restored one, %s", id, c.Servers[0].Endpoint, b.ClusterID)
	case len(silent(c, members)) > 0:
		return "not all members answer: " + describe(silent(c, members))
	case !sameMembers(c.Members, members):
		return fmt.Sprintf("the members are %s, expected %s", listed(c.Members), expected(members))
	case c.Leader() == nil:
		return "the members have no leader"
	case len(absent(c, members)) > 0: // it has not told the others where it serves, so none of its endpoints is silent
		return fmt.Sprintf("%s has not started yet, or not joined the others", listed(absent(c, members)))
	}
	for _, s := range c.Servers {
		switch {
		case !s.ReachesLeader:
			return s.Endpoint + " does not reach the leader"
		case s.Status.Header.Revision < b.Revision:
			return fmt.Sprintf("%s is at revision %d, expected at least %d", s.Endpoint, s.Status.Header.Revision, b.Revision)
		}
	}
	return ""
}

// absent returns the members that serve at no known endpoint, without those that are away.
func absent(c *cluster.Cluster, members []handoff.Member) (found []catalog.Member) {
	for _, m := range c.Members {
		serves := func(s *cluster.Server) bool { return s.ID() == m.ID }
		if !slices.ContainsFunc(c.Servers, serves) && !isAway(members, m.Name) {
			found = append(found, m)
		}
	}
	return found
}

// silent returns the endpoints that do not answer, without those of members that are away.
func silent(c *cluster.Cluster, members []handoff.Member) (found []cluster.Silence) {
	for _, s := range c.Silent {
		ofAway := func(m catalog.Member) bool {
			return isAway(members, m.Name) && slices.Contains(m.ClientURLs, s.Endpoint)
		}
		if !slices.ContainsFunc(c.Members, ofAway) {
			found = append(found, s)
		}
	}
	return found
}

func isAway(members []handoff.Member, name string) bool {
	return slices.ContainsFunc(members, func(m handoff.Member) bool { return m.Away && m.Name == name })
}

// sameMembers reports whether the members of a cluster are the expected ones, none of them a learner.
func sameMembers(found []catalog.Member, members []handoff.Member) bool {
	isExpected := func(f catalog.Member) bool {
		return slices.ContainsFunc(members, func(m handoff.Member) bool {
			return f.Name == m.Name && slices.Equal(slices.Sorted(slices.Values(f.PeerURLs)), slices.Sorted(slices.Values(m.PeerURLs)))
		})
	}
	return len(found) == len(members) && !slices.ContainsFunc(found, func(f catalog.Member) bool { return f.Learner || !isExpected(f) })
}

func listed(members []catalog.Member) string {
	var all []string
	for _, m := range members {
		text := m.Name + "=" + strings.Join(m.PeerURLs, "+")
		if m.Learner {
			text += " (a learner)"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func expected(members []handoff.Member) string {
	var all []catalog.Member
	for _, m := range members {
		all = append(all, catalog.Member{Name: m.Name, PeerURLs: m.PeerURLs})
	}
	return listed(all)
}

// describe returns why endpoints do not answer, with a remedy for a user that the restored data does not know.
func describe(silent []cluster.Silence) string {
	var all []string
	refused := false
	for _, s := range silent {
		all = append(all, fmt.Sprintf("%s: %v", s.Endpoint, s.Err))
		refused = refused || errors.Is(s.Err, rpctypes.ErrAuthFailed)
	}
	text := strings.Join(all, "; ")
	if refused {
		text += ": the restored data has the users and the passwords of its time: use those"
	}
	return text
}

// agree compares the key spaces of all members at the revision of the leader.
func agree(ctx context.Context, c *cluster.Cluster) (handoff.Progress, error) {
	alarms, err := c.Alarms(ctx)
	switch {
	case err != nil:
		return handoff.Progress{}, err
	case len(alarms) > 0:
		return wait("the alarm %s is raised: end its cause, then run etcdctl alarm disarm", strings.Join(alarms, " and ")), nil
	case !areComparable(c.Servers):
		return handoff.Progress{Done: true}, nil
	}
	revision := c.Leader().Status.Header.Revision
	hashes := make([]catalog.HashKV, len(c.Servers))
	for i, s := range c.Servers {
		hashes[i], err = s.HashKV(ctx, revision)
		switch {
		case errors.Is(err, cluster.ErrFuture), errors.Is(err, cluster.ErrCompacted):
			return handoff.Progress{Waiting: err.Error()}, nil
		case err != nil:
			return handoff.Progress{}, err
		}
	}
	return compare(c.Servers, hashes), nil
}

// areComparable reports whether all members run one version of etcd. The hashes of different versions may differ for equal key spaces.
func areComparable(servers []*cluster.Server) bool {
	return !slices.ContainsFunc(servers, func(s *cluster.Server) bool { return s.Status.Version != servers[0].Status.Version })
}

// compare is done if the hashes of the servers are equal.
func compare(servers []*cluster.Server, hashes []catalog.HashKV) handoff.Progress {
	first := hashes[0]
	for i, h := range hashes {
		switch {
		case h.CompactRevision != first.CompactRevision:
			return wait("a compaction came between the hashes of the members: they are compared again")
		case h.Hash != first.Hash:
			return wait("the members differ: HashKV at revision %d: %s has %08x, %s has %08x",
				first.Revision, servers[0].Endpoint, first.Hash, servers[i].Endpoint, h.Hash)
		}
	}
	return handoff.Progress{Done: true, Agreed: handoff.Agreed{Revision: first.Revision, HashKV: first.Hash}}
}
