package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// noteOrigin notes whatever makes it doubtful that base is a backup of the operator's own cluster. An attacker who may write
// to the repository can store a backup of another cluster there, and encrypt it: recipients are public.
func (p *Plan) noteOrigin(c catalog.Catalog, base catalog.Backup) {
	if !c.Signed {
		p.note("unsigned: --trust was not given, so anybody who may write to the repository can have stored this backup")
	}
	if b, ok := lastOther(c, base, func(b catalog.Backup) bool { return b.ClusterID == base.ClusterID }); ok {
		p.note("another cluster: this backup is of cluster id %s, backup %s (%s) of %s: expected only after a restore, or for a new cluster",
			base.ClusterID, b.ID, b.Started.UTC().Format(time.RFC3339), b.ClusterID)
	}
	if b, ok := lastOther(c, base, func(b catalog.Backup) bool { return readers(b) == readers(base) }); ok {
		p.note("another encryption: this backup is %s, backup %s (%s) is %s: expected only if the recipients were changed",
			readers(base), b.ID, b.Started.UTC().Format(time.RFC3339), readers(b))
	}
}

// lastOther returns the newest backup before base that is not like it; if base is the oldest, the oldest after it.
func lastOther(c catalog.Catalog, base catalog.Backup, like func(catalog.Backup) bool) (other catalog.Backup, found bool) {
	for _, b := range c.Backups { // newest first
		if like(b) {
			continue
		}
		if b.Started.Before(base.Started) {
			return b, true
		}
		other, found = b, true
	}
	return other, found
}

// readers describes who can read b.
func readers(b catalog.Backup) string {
	if b.Seal.Encryption == "" {
		return "not encrypted"
	}
	recipients := slices.Clone(b.Seal.Recipients)
	slices.Sort(recipients)
	return fmt.Sprintf("encrypted for %s", strings.Join(recipients, ", "))
}
