package imported

import "github.com/etcd-dr/etcd-dr/storage/catalog"

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
