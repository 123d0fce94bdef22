package repository_test

import (
	"slices"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// createImport stores an imported backup of another cluster, stored n minutes after noon.
func createImport(t *testing.T, c *repository.Cluster, n int) catalog.ID {
	t.Helper()
	id := catalog.NewImportID(stored.IDAt(n).Started(), 1)
	m := stored.ManifestOf(stored.Content, stored.Noon.Add(-24*time.Hour))
	m.ClusterID, m.Revision = "f00d", 1
	m.Origin = &catalog.Origin{Kind: catalog.OriginFile, Imported: id.Started(), Written: m.Started, File: "/srv/snapshot.db"}
	_, err := stored.TryCreate(t, c, id, m)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Only a caller that asks for imported backups, or names one, finds them. So a schedule, retention, drills and conditions, which read
// catalogs and surveys, are the same with and without them.
func TestImportsStandApart(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		stored.Create(t, c, stored.IDAt(1))
		stored.Create(t, c, stored.IDAt(3))
		before := stored.Survey(t, c, repository.SurveyOptions{})
		imports := []catalog.ID{createImport(t, c, 4), createImport(t, c, 2)}
		stored.AppendProof(t, c, importDrill(imports[0]))

		for name, o := range map[string]backups.LoadOptions{
			"all": {Proofs: true}, "the newest": {Newest: 1}, "later ones": {After: stored.IDAt(1)},
		} {
			cat := stored.Load(t, c, o)
			if len(cat.Imported) > 0 || len(cat.Backups) == 0 || cat.Backups[0].ID != stored.IDAt(3) {
				t.Errorf("%s: %d imports, backups %v", name, len(cat.Imported), stored.IDs(cat))
			}
		}
		cat := stored.Load(t, c, backups.LoadOptions{Newest: 1, Imported: true})
		var found []catalog.ID
		for _, b := range cat.Imported {
			found = append(found, b.ID)
		}
		if !slices.Equal(found, imports) || !slices.Equal(stored.IDs(cat), []catalog.ID{stored.IDAt(3)}) {
			t.Errorf("imports %v, backups %v", found, stored.IDs(cat))
		}
		named := stored.Load(t, c, backups.LoadOptions{Only: imports[1]})
		byID, err := named.Find(imports[1])
		if err != nil || byID.Origin == nil || len(named.Backups) > 0 {
			t.Errorf("found %+v, %v", byID.Origin, err)
		}
		after := stored.Survey(t, c, repository.SurveyOptions{})
		if after.Kept != before.Kept || after.Bytes != before.Bytes || len(after.Imported) > 0 || len(after.Latest) > 0 {
			t.Errorf("the survey counts imports: %+v", after)
		}
		drill, err := c.LastDrill(t.Context(), time.Now())
		if len(drill) > 0 || err != nil {
			t.Errorf("the drill of an import counts: %v", err)
		}
		_, changed := catalog.NewChange("c", after.Backups)
		if changed {
			t.Error("an import of another cluster counts as a change of the cluster")
		}
		leftovers, err := c.Leftovers(t.Context())
		if err != nil || len(leftovers) > 0 {
			t.Errorf("leftovers %v, %v", leftovers, err)
		}
	})
}

func importDrill(id catalog.ID) catalog.Proof {
	p := stored.ProofOf(id, catalog.Booted, catalog.Passed, 1)
	p.Drill = &catalog.Drill{Target: "backup " + string(id)}
	return p
}

// TestSignedImportAmongUnsignedBackups checks that a signed import does not make the next unsigned backup a refusal.
func TestSignedImportAmongUnsignedBackups(t *testing.T) {
	b := mem.New()
	stored.Create(t, stored.OpenCluster(t, b, "c"), stored.IDAt(0))
	createImport(t, stored.OpenWith(t, b, records.Policy{Key: stored.NewSigner(t).Key}), 1)
	stored.Create(t, stored.OpenCluster(t, b, "c"), stored.IDAt(2))
}
