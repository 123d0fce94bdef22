package imported_test

import (
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/imported"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestBeyond compares a salvaged database with a backup at revision 1010, from which a log leads to revision 1030.
func TestBeyond(t *testing.T) {
	b := catalog.Backup{Manifest: stored.ManifestOf(stored.Content, stored.At(1))}
	b.ID, b.Cluster, b.RaftIndex, b.Revision = stored.IDAt(1), "prod", 10, 1010
	log := stored.SegmentsOf(stored.NewWriter(t, "prod", stored.LineageID(1)).Some(3))
	alone := catalog.Catalog{Cluster: "prod", Backups: []catalog.Backup{b}}
	both := catalog.Catalog{Cluster: "prod", Backups: alone.Backups, Lineages: []catalog.Lineage{{ID: stored.LineageID(1), Segments: log}}}
	for name, test := range map[string]struct {
		catalog  catalog.Catalog
		id       string
		revision int64
		want     int64
	}{
		"an empty repository":   {catalog.Catalog{}, b.ClusterID, 5, 0},
		"older than the backup": {alone, b.ClusterID, 1009, 1010},
		"equal to the backup":   {alone, b.ClusterID, 1010, 0},
		"older than the log":    {both, b.ClusterID, 1010, 1030},
		"newer than the log":    {both, b.ClusterID, 1031, 0},
		"another cluster":       {both, "cafe", 5, 0},
		"a disk without an id":  {both, "", 5, 0},
	} {
		m := catalog.Manifest{ClusterID: test.id, Revision: test.revision}
		got := imported.Beyond(test.catalog, m)
		if got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
