package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// CheckWithout refuses to leave out members that neither cluster has, or so many that the new cluster has no quorum without them, or that they
// are a quorum of the old one, which may still run. The error matches fault.Usage.
func CheckWithout(p plan.Plan, names []string) error {
	inNew, inOld := 0, 0
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		isNew := slices.ContainsFunc(p.Members, func(m plan.Member) bool { return m.Name == name })
		isOld := slices.ContainsFunc(p.Old.Members, func(m catalog.Member) bool { return m.Name == name && !m.Learner })
		if !isNew && !isOld {
			return fmt.Errorf("%w: --without %s: the plan has no such member, it has %s: correct the name", fault.Usage, name, p.InitialCluster())
		}
		inNew, inOld = inNew+count(isNew), inOld+count(isOld)
	}
	if inNew > 0 && 2*inNew >= len(p.Members) {
		return fmt.Errorf("%w: --without %s: the other members are no quorum of %d: make a plan with the members that are left: pass --initial-cluster",
			fault.Usage, strings.Join(names, ","), len(p.Members))
	}
	voters := len(slices.DeleteFunc(slices.Clone(p.Old.Members), func(m catalog.Member) bool { return m.Learner }))
	if 2*inOld > voters {
		return fmt.Errorf("%w: --without %s: these are a quorum of the old cluster, which may still confirm writes: stop them, and omit them",
			fault.Usage, strings.Join(names, ","))
	}
	return nil
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// isWithout reports whether only members that are left out may answer at a client URL.
func (m *Manager) isWithout(at string) bool {
	owners := m.Plan.OwnersOf(at)
	return len(owners) > 0 && !slices.ContainsFunc(owners, func(name string) bool { return !slices.Contains(m.Without, name) })
}

// withoutIt returns the remedy for an old member that answers at a client URL and cannot be stopped, as the end of a message; "" if there is none.
func (m *Manager) withoutIt(at string) string {
	owners := m.Plan.OwnersOf(at)
	names := slices.Concat(m.Without, owners)
	if len(owners) != 1 || CheckWithout(m.Plan, names) != nil {
		return ""
	}
	return "; if you cannot, run this command again with --without " + strings.Join(names, ",")
}
