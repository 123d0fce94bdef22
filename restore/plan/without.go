package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// CheckWithout refuses to leave out members that neither cluster has, or so many that the new cluster has no quorum without them, or that they
// are a quorum of the old one, which may still run. The error matches fault.Usage.
func (p Plan) CheckWithout(names []string) error {
	before := voters(p.Old.Members)
	for _, name := range names {
		if countNamed(slices.Concat(p.Members, before), name) == 0 {
			return fmt.Errorf("%w: --without %s: the plan has no such member, it has %s: correct the name", fault.Usage, name, p.InitialCluster())
		}
	}
	inNew := countNamed(p.Members, names...)
	if inNew > 0 && 2*inNew >= len(p.Members) {
		return fmt.Errorf("%w: --without %s: the other members are no quorum of %d: make a plan with the members that are left: pass --initial-cluster",
			fault.Usage, strings.Join(names, ","), len(p.Members))
	}
	if 2*countNamed(before, names...) > len(before) {
		return fmt.Errorf("%w: --without %s: these are a quorum of the old cluster, which may still confirm writes: stop them, and omit them",
			fault.Usage, strings.Join(names, ","))
	}
	return nil
}

// countNamed returns the number of members that have one of the names.
func countNamed(members []Member, names ...string) (count int) {
	for _, m := range members {
		if slices.Contains(names, m.Name) {
			count++
		}
	}
	return count
}
