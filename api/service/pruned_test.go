package service

import (
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage"
)

// A service logs each backup that it removes, as dr prune prints it.
func TestServeLogsPrunedBackups(t *testing.T) {
	var lines []string
	logPruned(document.Prune{
		Backups: []document.PrunedBackup{{ID: "kept", Keep: true}, {ID: "gone", Reasons: []string{"no rule keeps it"}}},
		Log:     []document.PrunedLog{{Lineage: "abc", Upto: 9, Segments: 3, Reason: "before the window"}},
	}, "main", func(e storage.Event) {
		if e.Level == storage.Note {
			lines = append(lines, e.Message)
		}
	})
	got := strings.Join(lines, "\n")
	for _, want := range []string{"backup gone is removed from repository main: no rule keeps it", "3 segments of the log, up to 9 of lineage abc"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if strings.Contains(got, "kept") {
		t.Errorf("what stays is in %q", got)
	}
}
