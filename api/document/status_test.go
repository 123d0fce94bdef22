package document_test

import (
	"slices"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

func standing() condition.Standing {
	w := window().Window
	p := drilled(catalog.Failed)
	return condition.Standing{
		Repository: "main", At: at, Problem: "access denied", Backups: 9, Damaged: 1, Bytes: 9000, Oldest: at.Add(-time.Hour),
		Good: &condition.Good{
			Last: condition.Last{ID: id, Started: at, Revision: 4711}, Size: 2000, Stored: 1000, Encrypted: true,
			Proven: catalog.Hashed, ProvenAt: at.Add(time.Minute),
		},
		Doubt: "it is cut off", Diverged: "backup …: m3 has another hash", Future: id, FutureLog: at, Due: at.Add(time.Hour), Changed: "the cluster began anew", UsualSize: 2100, Keys: 300, UsualKeys: 310,
		Verified: at, Decrypted: at, Drilled: at, Drill: &p, FailedDrill: &p, Window: &w, Gaps: 2, Gap: "the member had compacted it", LogDamaged: 1, LogDoubt: "index-0000000000000001.json: damaged",
	}
}

func conditions() []condition.Condition {
	return []condition.Condition{{
		Name: condition.BackupLate, Severity: condition.Critical, Cluster: "prod", Repository: "main", Since: at,
		Message: "the next was due 2h0m ago", Cure: "see that dr serve runs",
	}, {
		Name: condition.MembersAway, Severity: condition.Warning, Cluster: "prod", Since: at, Message: "one is silent", Cure: "start it",
	}}
}

func statusDocuments() map[string]any {
	return map[string]any{
		"status": document.NewStatus([]document.ClusterStatus{{
			Cluster: "prod", Suspended: true, Standings: []condition.Standing{standing()}, Conditions: conditions(),
		}}),
		"status-unreadable": document.NewStatus([]document.ClusterStatus{{
			Cluster: "prod", Standings: []condition.Standing{{Repository: "main", Problem: "access denied"}}, Conditions: []condition.Condition{},
		}}),
	}
}

func TestStatusPutsTheWorstFirst(t *testing.T) {
	var all []document.ClusterStatus
	for cluster, conditions := range map[string][]condition.Condition{
		"a":        nil,
		"b":        nil,
		"c":        {{Name: condition.NotLocked, Severity: condition.Warning}},
		"unproven": {{Name: condition.NeverProven, Severity: condition.Warning}},
		"damaged":  {{Name: condition.BackupDamaged, Severity: condition.Warning}},
		"late":     {{Name: condition.BackupLate, Severity: condition.Critical}},
		"and more": {{Name: condition.BackupLate, Severity: condition.Critical}, {Name: condition.NotLocked, Severity: condition.Warning}},
		"nothing":  {{Name: condition.NoBackup, Severity: condition.Critical}},
	} {
		all = append(all, document.ClusterStatus{Cluster: cluster, Conditions: conditions})
	}
	got := document.NewStatus(all)
	var order []string
	for _, c := range got.Clusters {
		order = append(order, c.Cluster)
	}
	want := []string{"nothing", "and more", "late", "damaged", "unproven", "c", "a", "b"}
	if !slices.Equal(order, want) || got.Attention != 4 {
		t.Errorf("%q, %d need attention, want %q and 4", order, got.Attention, want)
	}
}
