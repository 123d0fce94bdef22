package node

import (
	"slices"
	"strings"
)

// isWithout reports whether only members that are left out may answer at a client URL.
func (m *Manager) isWithout(at string) bool {
	owners := m.Plan.OwnersOf(at)
	return len(owners) > 0 && !slices.ContainsFunc(owners, func(name string) bool { return !slices.Contains(m.Without, name) })
}

// servesAlone reports whether the members that may answer at a client URL are a quorum of the cluster that was found there. The member of
// kubeadm init is, once it has begun again without data.
func (m *Manager) servesAlone(at string, found identified) bool {
	owners, here := m.Plan.OwnersOf(at), 0
	for _, member := range found.members {
		if slices.Contains(owners, member.Name) {
			here++
		}
	}
	return len(m.Plan.Members) > 1 && 2*here > len(found.members)
}

// withoutIt returns the remedy for an old member that answers at a client URL and cannot be stopped, as the end of a message; "" if there is none.
func (m *Manager) withoutIt(at string) string {
	owners := m.Plan.OwnersOf(at)
	names := slices.Concat(m.Without, owners)
	if len(owners) != 1 || m.Plan.CheckWithout(names) != nil {
		return ""
	}
	return "; if you cannot, run this command again with --without " + strings.Join(names, ",")
}
