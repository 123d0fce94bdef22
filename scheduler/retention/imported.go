package retention

import (
	"fmt"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// RemoveImported returns the decisions that remove the imported backups with these ids, and nothing else. Retention rules neither count
// nor remove imported backups. The errors match catalog.ErrNotFound, or fault.Refused for a backup of the live cluster.
func RemoveImported(c catalog.Catalog, ids []catalog.ID) (d Decisions, err error) {
	for _, b := range c.All() {
		d.Kept += b.Stored.Size
	}
	for _, l := range c.Lineages {
		for _, s := range l.Segments {
			d.Kept += s.Size
		}
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		b, err := c.Find(id)
		if err != nil {
			return Decisions{}, err
		}
		if b.Origin == nil {
			return Decisions{}, fmt.Errorf("%w: backup %s was taken from the live cluster, not imported: use retention rules to remove it", fault.Refused, id)
		}
		d.Backups = append(d.Backups, Decision{Backup: b, Reasons: []string{"an imported backup, removed by hand"}})
		d.Kept -= b.Stored.Size
		d.Removed += b.Stored.Size
	}
	return d, nil
}
