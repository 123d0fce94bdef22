package catalog_test

import (
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// importedManifest returns a valid manifest of an imported file.
func importedManifest(id catalog.ID) catalog.Manifest {
	m := stored.ManifestOf(stored.Content, stored.Noon)
	m.Format, m.ID, m.Cluster, m.ClusterID = catalog.Manifests.Format, id, "c", ""
	m.Stored = catalog.Blob{Name: "snapshot.db.zst", Size: 7, SHA256: m.Plain.SHA256}
	m.Seal.Compression = "zstd"
	m.Origin = &catalog.Origin{Kind: catalog.OriginFile, Imported: stored.Noon, Written: stored.Noon, File: "/srv/snapshot.db"}
	return m
}

func TestImportIDs(t *testing.T) {
	at := time.Date(2026, 11, 21, 9, 24, 33, 5, time.UTC)
	id := catalog.NewImportID(at, 0xabcd)
	if id != "20261121T092433Z-000000000000abcd-import" {
		t.Fatalf("the id is %s", id)
	}
	parsed, err := catalog.ParseID(string(id))
	if err != nil || parsed != id || !id.IsImport() || id.Revision() != 0xabcd || !id.Started().Equal(at.Truncate(time.Second)) {
		t.Errorf("parsed %s, %v: revision %x at %s", parsed, err, id.Revision(), id.Started())
	}
	later := id.Later(time.Minute)
	if later != "20261121T092533Z-000000000000abcd-import" {
		t.Errorf("a minute later it is %s", later)
	}
	own := catalog.NewID(at, 1)
	if own.IsImport() || own.Later(time.Second) != catalog.NewID(at.Add(time.Second), 1) {
		t.Errorf("%s: an import, or later %s", own, own.Later(time.Second))
	}
	for _, bad := range []string{string(id) + "-import", string(own) + "-", string(own) + "-imports", "-import", string(own) + "-IMPORT"} {
		_, err := catalog.ParseID(bad)
		if err == nil {
			t.Errorf("%q is an id", bad)
		}
	}
}

func TestOriginIsValidated(t *testing.T) {
	id := catalog.NewImportID(stored.Noon, 1000)
	err := importedManifest(id).Validate()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(m *catalog.Manifest){
		"an import without origin":          func(m *catalog.Manifest) { m.Origin = nil },
		"an origin under an ordinary id":    func(m *catalog.Manifest) { m.ID = catalog.NewID(stored.Noon, 1000) },
		"an unknown kind":                   func(m *catalog.Manifest) { m.Origin.Kind = "other" },
		"a salvage without disks":           func(m *catalog.Manifest) { m.Origin.Kind = catalog.OriginSalvage },
		"a file with disks":                 func(m *catalog.Manifest) { m.Origin.Salvage = &catalog.Salvage{} },
		"no time of the import":             func(m *catalog.Manifest) { m.Origin.Imported = time.Time{} },
		"no time of the data":               func(m *catalog.Manifest) { m.Origin.Written = time.Time{} },
		"a file that controls the terminal": func(m *catalog.Manifest) { m.Origin.File = "a\x1b[2J" },
		"a disk that controls the terminal": func(m *catalog.Manifest) {
			m.Origin.Kind, m.Origin.Salvage = catalog.OriginSalvage, &catalog.Salvage{Disks: []catalog.SalvagedDisk{{Dir: "a\x1b[2J"}}}
		},
	} {
		m := importedManifest(id)
		change(&m)
		if m.Validate() == nil {
			t.Errorf("%s is valid", name)
		}
	}
}

func TestOriginIsDescribed(t *testing.T) {
	one := catalog.Salvage{Disks: []catalog.SalvagedDisk{{Dir: "/a"}}, Voters: 3, Certain: 70}
	for want, change := range map[string]func(s *catalog.Salvage){
		"salvaged from the disks of 1 of 3 members: certain up to revision 70; writes that only the missing members had are lost": func(*catalog.Salvage) {},
		"some may never have been committed":     func(s *catalog.Salvage) { s.Probable = 2 },
		"every acknowledged write is among them": func(s *catalog.Salvage) { s.Probable, s.Majority = 2, true },
		"5 requests at the end of the logs were": func(s *catalog.Salvage) { s.LeftOut = 5 },
		"salvaged from 1 disks: certain up to":   func(s *catalog.Salvage) { s.Voters = 0 },
	} {
		s := one
		change(&s)
		text := (catalog.Origin{Kind: catalog.OriginSalvage, Salvage: &s}).String()
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
}

// Latest never returns an imported backup, and a damaged one does not stop it.
func TestLatestIgnoresImports(t *testing.T) {
	id := catalog.NewImportID(stored.Noon.Add(time.Hour), 1000)
	own := catalog.Backup{Manifest: stored.ManifestOf(stored.Content, stored.Noon)}
	own.ID = catalog.NewID(stored.Noon, 1000)
	imported := catalog.Backup{Manifest: importedManifest(id)}
	damaged := []catalog.Damage{{ID: catalog.NewImportID(stored.Noon.Add(2*time.Hour), 1), Err: catalog.ErrDamaged}}
	c := catalog.Catalog{Cluster: "c", Backups: []catalog.Backup{own}, Imported: []catalog.Backup{imported}, Damaged: damaged}
	b, err := c.Latest()
	if err != nil || b.ID != own.ID {
		t.Errorf("the latest is %s, %v", b.ID, err)
	}
	b, err = c.Find(id)
	if err != nil || b.ID != id {
		t.Errorf("found %s, %v", b.ID, err)
	}
	c.Backups = nil
	_, err = c.Latest()
	stored.WantError(t, "Latest", err, catalog.ErrNotFound)
	if err == nil || !strings.Contains(err.Error(), "only imported ones") {
		t.Errorf("error %v", err)
	}
}
