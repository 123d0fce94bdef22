package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// salvagedBackup returns a fixedBackup that was salvaged an hour later, from disks that reach a higher revision.
func salvagedBackup() catalog.Backup {
	return later(1, func(b *catalog.Backup) {
		b.ID = catalog.NewImportID(b.Started, b.Revision)
		b.Origin = &catalog.Origin{Kind: catalog.OriginSalvage, Imported: b.Started, Written: b.Started, Salvage: &catalog.Salvage{
			Disks: []catalog.SalvagedDisk{{Dir: "/mnt/m1"}}, Voters: 3, Certain: b.Revision, LeftOut: 3, Most: b.Revision + 1000,
		}}
	})
}

// importedFile returns a backup of a file that does not name its cluster.
func importedFile() catalog.Backup {
	return changed(salvagedBackup(), func(b *catalog.Backup) {
		b.ClusterID = ""
		b.Origin = &catalog.Origin{Kind: catalog.OriginFile, Imported: b.Started, Written: b.Started.Add(-2 * time.Hour), File: "/srv/s.db", Unhashed: true}
	})
}

func mentions(notes []string, words string) bool {
	return slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, words) })
}

func TestImportedBackupIsRestoredByItsID(t *testing.T) {
	for name, test := range map[string]struct {
		backup catalog.Backup
		notes  []string
		not    []string
	}{
		"salvaged": {salvagedBackup(), []string{"salvaged from the disks of 1 of 3 members: certain up to revision", "everything later is lost"},
			[]string{"does not name its cluster", "another cluster", "the newest known point"}},
		"a file": {importedFile(), []string{"imported from the file /srv/s.db, which did not end with a digest", "does not name its cluster", "the newest known point"},
			[]string{"another cluster"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := catalogOf(fixedBackup())
			c.Imported = []catalog.Backup{test.backup}
			p, err := plan.New(c, plan.Target{Backup: test.backup.ID}, plan.Layout{Token: "t"}, now)
			if err != nil {
				t.Fatal(err)
			}
			if p.Backup.ID != test.backup.ID || p.Log != nil || !p.Reach.NotBefore.IsZero() {
				t.Errorf("backup %s, log %v, reach %+v", p.Backup.ID, p.Log, p.Reach)
			}
			for _, words := range test.notes {
				if !mentions(p.Notes, words) {
					t.Errorf("no note has %q:\n%s", words, strings.Join(p.Notes, "\n"))
				}
			}
			for _, words := range test.not {
				if mentions(p.Notes, words) {
					t.Errorf("a note has %q:\n%s", words, strings.Join(p.Notes, "\n"))
				}
			}
		})
	}
}

// Clients may have seen every revision on the salvaged disks, also when another backup is restored.
func TestSalvagedRevisionsAreKnown(t *testing.T) {
	c := catalogOf(fixedBackup())
	c.Imported = []catalog.Backup{salvagedBackup()}
	for _, id := range []catalog.ID{fixedBackup().ID, salvagedBackup().ID} {
		p, err := plan.New(c, plan.Target{Backup: id}, plan.Layout{Token: "t"}, now)
		if err != nil || p.Bump.Known != salvagedBackup().Origin.Salvage.Most {
			t.Errorf("%s: bump %+v, %v", id, p.Bump, err)
		}
	}
}

// No target but its id leads to an imported backup, and no log continues from one, although all its numbers fit.
func TestImportedBackupIsNoBase(t *testing.T) {
	b := fixedBackup()
	imported := salvagedBackup()
	s := catalog.Segment{Header: segment.Header{
		Cluster: b.Cluster, ClusterID: b.ClusterID, Lineage: strings.Repeat("ab", 16), Seq: 1, First: b.RaftIndex + 1, Last: b.RaftIndex + 9,
		Source: segment.WAL, End: segment.End{Position: b.RaftIndex + 9, Term: b.RaftTerm, Digest: "x"}, Written: imported.Started.Add(time.Minute),
	}}
	c := catalog.Catalog{Cluster: b.Cluster, Imported: []catalog.Backup{imported}, Lineages: []catalog.Lineage{{ID: s.Lineage, Segments: []catalog.Segment{s}}}}
	w := c.Windows()
	if len(w) > 0 {
		t.Errorf("windows %+v", w)
	}
	for name, target := range map[string]plan.Target{
		"latest": {}, "a revision": {Revision: imported.Revision}, "a time": {Time: imported.Finished.Add(time.Hour)}, "the nearest": {Best: true},
	} {
		p, err := plan.New(c, target, plan.Layout{Token: "t"}, now)
		if err == nil {
			t.Errorf("%s leads to %s", name, p.Backup.ID)
		}
	}
	c.Backups = []catalog.Backup{b}
	p, err := plan.New(c, plan.Target{Backup: imported.ID}, plan.Layout{Token: "t"}, now)
	if err != nil || p.Log != nil {
		t.Errorf("the log is replayed onto it: %+v, %v", p.Log, err)
	}
	p, err = plan.New(c, plan.Target{}, plan.Layout{Token: "t"}, now)
	if err != nil || p.Backup.ID != b.ID {
		t.Errorf("the newest point begins with %+v, %v", p.Backup, err)
	}
}

// TestOnlyImportedBackups checks that a target in a cluster with imported backups alone names them.
func TestOnlyImportedBackups(t *testing.T) {
	c := catalogOf()
	c.Imported = []catalog.Backup{salvagedBackup()}
	for name, target := range map[string]plan.Target{"the newest": {}, "a revision": {Revision: 4}} {
		_, err := plan.New(c, target, plan.Layout{Token: "token-1"}, now)
		if !errors.Is(err, catalog.ErrNotFound) || !strings.Contains(err.Error(), "only imported ones") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
