package convert_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/imported"
)

func TestImport(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	source := func(name string) imported.Source {
		return imported.Source{Place: "/srv/" + name, Size: 7, Modified: at, Name: imported.ParseName(name)}
	}
	got := convert.Import([]imported.Outcome{
		{Source: source("etcd-snapshot-n1-1772600767"), State: imported.Stored, Backup: "id", Revision: 4711, Written: at},
		{Source: source("Incr-1-2-1772600767"), State: imported.Skipped, Written: at},
		{Source: source("notes"), State: imported.Failed, Written: at, Err: errors.New("damaged: /srv/notes")},
	})
	want := document.Import{Sources: []document.ImportSource{
		{Source: "/srv/etcd-snapshot-n1-1772600767", Tool: "k3s", Size: 7, Written: at, State: document.ImportStored, Backup: "id", Revision: 4711},
		{Source: "/srv/Incr-1-2-1772600767", Tool: "Gardener", Size: 7, Written: at, State: document.ImportSkipped, Why: "it is a delta: only full snapshots can be imported"},
		{Source: "/srv/notes", Size: 7, Written: at, State: document.ImportFailed, Why: "damaged: /srv/notes"},
	}}
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Error(diff)
	}
	if convert.Import(nil).Sources == nil {
		t.Error("the list of no source is nil")
	}
}
