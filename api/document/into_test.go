package document_test

import (
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// intoRecord is the record of a restore that has succeeded, after an obstacle.
func intoRecord() handoff.Record {
	met := handoff.Met{}
	met.Error.Message = "the newest backup is damaged"
	return handoff.Record{
		ID: "0123456789abcdef", Phase: handoff.Succeeded, Step: handoff.Keep, End: handoff.Succeeded,
		Took: handoff.Took{handoff.Planning: 0.5, handoff.Staging: 7, handoff.Verifying: 30},
		Down: at, Served: at.Add(14600 * time.Millisecond), Up: at.Add(time.Minute),
		Handoff: handoff.Handoff{
			Manager:  "StatefulSet payments/etcd",
			Members:  []handoff.Member{{Member: plan.Member{Name: "etcd-0"}, DataDir: "/var/lib/etcd", Disk: "data-etcd-0", Node: "n1"}},
			Acts:     []handoff.Act{{Text: "scale to 0", Verb: "patch statefulsets payments/etcd"}},
			Findings: []handoff.Finding{{Text: "StatefulSet payments/etcd is being deleted", Remedy: "create it again", Refuses: true}},
		},
		Plan:   &plan.Plan{ID: "0123456789abcdef", Backup: &catalog.Backup{Manifest: manifest()}},
		Met:    []handoff.Met{met},
		Built:  handoff.Built{ClusterID: "cafe", Revision: 1000004711, Keys: 19},
		Agreed: handoff.Agreed{Revision: 1000004711, HashKV: 48879},
	}
}

func intoDocuments() map[string]any {
	r := intoRecord()
	restored := document.NewInto(r)
	restored.Undo = []string{"dr", "restore", "--into", "statefulset/etcd", "--namespace", "payments", "--undo", r.ID}
	restored.Clean = []string{"dr", "restore", "--into", "statefulset/etcd", "--namespace", "payments", "--clean", r.ID}
	undone := intoRecord()
	undone.End, undone.Reason = handoff.Failed, "ordered to go back"
	return map[string]any{"into": restored, "into-undone": document.NewInto(undone), "into-plan": document.NewIntoPlan(r.ID, *r.Plan, r.Handoff)}
}

// The state is that in which the target is, whatever the restore has done before.
func TestIntoState(t *testing.T) {
	for _, test := range []struct {
		want   document.IntoState
		record handoff.Record
	}{
		{document.IntoRestored, handoff.Record{End: handoff.Succeeded, Step: handoff.Keep}},
		{document.IntoUndone, handoff.Record{End: handoff.Failed, Step: handoff.Keep, Sealed: true}},
		{document.IntoUndone, handoff.Record{End: handoff.Failed}}, // before any data was moved aside, so there is nothing to remove
		{document.IntoStopped, handoff.Record{
			End: handoff.Failed, Step: handoff.Keep, Sealed: true, Lost: []string{"m1"}, Handoff: handoff.Handoff{Members: make([]handoff.Member, 2)},
		}},
		{document.IntoRefused, handoff.Record{End: handoff.Refused}},
		{document.IntoRemoved, handoff.Record{End: handoff.Succeeded, Sealed: true}},
		{document.IntoRemoved, handoff.Record{End: handoff.Failed, Sealed: true}},
	} {
		want, r := test.want, test.record
		got := document.NewInto(r)
		if got.State != want || got.Phases == nil || got.Downtime != 0 {
			t.Errorf("got %+v, want state %s", got, want)
		}
	}
}
