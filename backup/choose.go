package backup

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// choose returns the member to read. It never returns a learner, which may lag without bound and does not vote.
func choose(c *cluster.Cluster, from string) (*cluster.Server, error) {
	voters := slices.DeleteFunc(slices.Clone(c.Servers), func(s *cluster.Server) bool { return s.Status.IsLearner })
	slices.SortStableFunc(voters, byProgress)
	switch from {
	case "leader":
		leader := c.Leader()
		if leader != nil {
			return leader, nil
		}
	case "follower":
		voters = slices.DeleteFunc(voters, func(s *cluster.Server) bool { return s == c.Leader() || c.Quorum && !s.ReachesLeader })
		if len(voters) == 0 {
			return nil, fmt.Errorf("%w: no healthy follower answers: use --from any or --from leader", fault.Refused)
		}
	case "any":
	default:
		return memberAt(c, from)
	}
	if len(voters) == 0 {
		return nil, fmt.Errorf("%w: only learners answer, and a learner may lag without bound: name a voting member in --endpoints",
			fault.Refused)
	}
	return voters[0], nil
}

// byProgress orders the members that reach the leader before the others, and among them the later term and the higher
// applied index first.
func byProgress(a, b *cluster.Server) int {
	return cmp.Or(
		-cmp.Compare(boolRank(a.ReachesLeader), boolRank(b.ReachesLeader)),
		-cmp.Compare(a.Status.RaftTerm, b.Status.RaftTerm),
		-cmp.Compare(a.Status.RaftAppliedIndex, b.Status.RaftAppliedIndex),
	)
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}

func memberAt(c *cluster.Cluster, endpoint string) (*cluster.Server, error) {
	for _, s := range c.Servers {
		if s.Endpoint != endpoint && !slices.Contains(s.Aliases, endpoint) {
			continue
		}
		if s.Status.IsLearner {
			return nil, fmt.Errorf("%w: %s is a learner, which may lag without bound: choose a voting member", fault.Refused, endpoint)
		}
		return s, nil
	}
	for _, s := range c.Silent {
		if s.Endpoint == endpoint {
			return nil, fmt.Errorf("%s does not answer: %w", endpoint, s.Err)
		}
	}
	return nil, fmt.Errorf("%w: --from %s: use leader, follower, any, or one of --endpoints as written there",
		cluster.ErrConfig, endpoint)
}

// warnAbout warns about silent members, a missing quorum, and a member that is cut off or is not the requested leader.
func warnAbout(c *cluster.Cluster, chosen *cluster.Server, from string, report storage.Report) {
	for _, s := range c.Silent {
		warn(report, "%s does not answer: %v", s.Endpoint, s.Err)
	}
	switch {
	case !c.Quorum:
		warn(report, "the cluster has no quorum: the backup has the data of %s and is marked no-quorum", chosen.Endpoint)
	case !chosen.ReachesLeader:
		warn(report, "%s is cut off from the cluster: the backup may be old", chosen.Endpoint)
	case from == "leader" && c.Leader() == nil:
		warn(report, "the leader does not answer: reading from %s", chosen.Endpoint)
	}
	report.Say(storage.Event{Stage: "connect", Object: chosen.Endpoint, Message: "reading from member " + chosen.ID()})
}
