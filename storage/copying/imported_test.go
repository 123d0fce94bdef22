package copying_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/copying"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// An imported backup is copied like any other. Since compares the time of its import: its data may be years old.
func TestCopyImported(t *testing.T) {
	source := mem.New()
	from := stored.OpenCluster(t, source, "c")
	id := catalog.NewImportID(stored.At(10), 1)
	m := stored.ManifestOf(stored.Content, stored.Noon.AddDate(-2, 0, 0))
	m.Origin = &catalog.Origin{Kind: catalog.OriginFile, Imported: stored.At(10), Written: m.Started, File: "/srv/snapshot.db"}
	_, err := stored.TryCreate(t, from, id, m)
	if err != nil {
		t.Fatal(err)
	}
	for since, want := range map[time.Time]int{{}: 1, stored.At(5): 1, stored.At(15): 0} {
		target := stored.OpenCluster(t, mem.New(), "c")
		result := stored.MustCopy(t, from, target, copying.Options{Since: since})
		copied := stored.Load(t, target, backups.LoadOptions{Imported: true})
		if result.Backups != want || len(copied.Imported) != want || len(copied.Backups) != 0 {
			t.Errorf("since %s: %d copied, %d there", since, result.Backups, len(copied.Imported))
			continue
		}
		if want > 0 {
			original := stored.Load(t, from, backups.LoadOptions{Imported: true})
			diff := cmp.Diff(original.Imported, copied.Imported)
			if diff != "" {
				t.Error(diff)
			}
		}
	}
}
