package plan

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/etcd-dr/etcd-dr/restore/disk"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Equivalent reports whether data that was built for p serves for q. The plans of one member alone need not have the same token, which
// is random, nor the same known revisions, as long as p continues far above those of q. Several members must have one plan.
func (p Plan) Equivalent(q Plan) bool {
	if len(p.Members) > 1 || len(q.Members) > 1 {
		return p.ID == q.ID
	}
	return p.Bump.covers(q.Bump) && bytes.Equal(p.content(), q.content())
}

// covers reports whether a key space that continues as b demands is also far enough above all revisions that were known for c.
func (b Bump) covers(c Bump) bool {
	return b.By == c.By && (b.To == c.To || c.To > 0 && b.To >= c.Known+kubernetesBump/2)
}

// content returns everything in p that determines the restored key space and its members.
func (p Plan) content() []byte {
	p.ID, p.Into, p.Token, p.Notes, p.Estimate, p.Old, p.Reach = "", Into{}, "", nil, 0, Old{}, nil
	p.OldIsDead = false
	p.Bump.To, p.Bump.Known = 0, 0
	text, _ := json.Marshal(p) // of plain fields: cannot fail
	return text
}

// CheckReplaced refuses to replace the data dir d by the member that p places if d belongs to another cluster or to another
// member. A data dir that is too damaged to name its member passes.
func (p Plan) CheckReplaced(d disk.Disk) error {
	self, known := d.Self()
	for _, db := range d.Databases {
		if d.Cluster != "" && p.IsStranger(d.Cluster, db.Members) {
			return fmt.Errorf("%w: %s belongs to cluster %s, which is not the one to restore: name the data dir of %s, "+
				"or move %s aside and restore without --replace", fault.Refused, d.Dir, d.Cluster, p.Into.Name, d.Dir)
		}
	}
	if known && self.Name != "" && self.Name != p.Into.Name {
		return fmt.Errorf("%w: %s belongs to member %s, not to %s: name its own data dir, or restore --name %s",
			fault.Refused, d.Dir, self.Name, p.Into.Name, self.Name)
	}
	return nil
}
