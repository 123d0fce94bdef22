package imported

import (
	"context"
	"fmt"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// ReportNewer sends a note if a newer revision of d's cluster can be restored from the repository called name, and a warning if the
// repository cannot be read.
func (d *Database) ReportNewer(ctx context.Context, c *repository.Cluster, name string, report storage.Report) {
	cat, err := c.Load(ctx, backups.LoadOptions{Log: true})
	if err != nil {
		report.Say(storage.Event{Stage: "compare", Level: storage.Warning, Message: "cannot compare the disks with the repository: " + err.Error()})
		return
	}
	newest := Beyond(cat, d.Manifest)
	if newest > 0 {
		report.Say(storage.Event{Stage: "compare", Level: storage.Note, Message: fmt.Sprintf(
			"%s reaches revision %d of this cluster, the disks %d: dr restore --from-data-dir with --repo loses less than this backup",
			name, newest, d.Manifest.Revision)})
	}
}

// Beyond returns the newest revision of m's cluster that can be restored from c, if it is newer than m's; else 0. A database that was
// salvaged from disks can be older than the repository of the same cluster.
func Beyond(c catalog.Catalog, m catalog.Manifest) int64 {
	newest := m.Revision
	ours := map[catalog.ID]bool{}
	for _, b := range c.Backups {
		if m.ClusterID != "" && catalog.SameClusterID(b.ClusterID, m.ClusterID) {
			newest, ours[b.ID] = max(newest, b.Revision), true
		}
	}
	for _, w := range c.Windows() {
		if ours[w.Base] {
			newest = max(newest, w.To.Revision)
		}
	}
	if newest == m.Revision {
		return 0
	}
	return newest
}
