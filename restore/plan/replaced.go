package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/restore/disk"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Equivalent reports whether data that was built for p serves for q. Plans of several members must be equal. Plans of a single member
// may differ in the token and in the known revisions, as long as p continues far above the revisions that are known for q.
func (p Plan) Equivalent(q Plan) bool {
	if len(p.Members) > 1 || len(q.Members) > 1 {
		return p.ID == q.ID
	}
	return p.Bump.covers(q.Bump) && bytes.Equal(p.content(), q.content())
}

// covers reports whether a key space that continues as b demands is also far enough above all revisions that were known for c. A bump by
// a number of the user's begins at a revision that only the run knew, which has checked the result against b.Known.
func (b Bump) covers(c Bump) bool {
	enough := c.Known + kubernetesBump/2
	switch {
	case b.By != c.By:
		return false
	case b.By > 0 && b.Auto: // the key space continues from at least b.Known+b.By, if it is bumped
		return b.Known+b.By >= enough
	case b.By > 0:
		return b.Known >= c.Known
	}
	return b.To == c.To || c.To > 0 && b.To >= enough
}

// content returns, as JSON, everything in p that determines the restored key space and its members.
func (p Plan) content() []byte {
	p.ID, p.Into, p.Token, p.Notes, p.Estimate, p.Old, p.Reach = "", Into{}, "", nil, 0, Old{}, nil
	p.OldIsDead = false
	p.Bump.To, p.Bump.Known = 0, 0
	text, _ := json.Marshal(p) // cannot fail: all fields are plain data
	return text
}

// CheckReplaced refuses to replace the data dir d by the member that p places if d belongs to another cluster or to another
// member. A data dir that is too damaged to name its members passes.
func (p Plan) CheckReplaced(d disk.Disk) error {
	for _, db := range d.Databases {
		if len(db.Members) > 0 && !p.knows(d.Cluster, db.Members) {
			return fmt.Errorf("%w: %s belongs to another cluster, with the members %s: pass the data dir of %s, or move %s aside "+
				"and restore without --replace", fault.Refused, d.Dir, memberNames(db.Members), p.Into.Name, d.Dir)
		}
	}
	self, known := d.Self()
	if known && self.Name != "" && self.Name != p.Into.Name {
		return fmt.Errorf("%w: %s belongs to member %s, not to %s: pass the data dir of %s, or restore --name %s",
			fault.Refused, d.Dir, self.Name, p.Into.Name, p.Into.Name, self.Name)
	}
	return nil
}

// knows reports whether the cluster with this id and these members may be the one that p replaces. The id is "" if unknown.
func (p Plan) knows(clusterID string, members []catalog.Member) bool {
	if clusterID != "" {
		return !p.IsStranger(clusterID, members)
	}
	return slices.ContainsFunc(members, func(m catalog.Member) bool { return m.Name == p.Into.Name })
}

func memberNames(members []catalog.Member) string {
	var names []string
	for _, m := range members {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}
