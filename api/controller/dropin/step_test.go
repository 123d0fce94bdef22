package dropin

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
)

var now = time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)

// restoring returns an EtcdRestore of ours in a phase, with conditions that are True.
func restoring(phase v1alpha1.RestorePhase, suspended bool, conditions ...string) *v1alpha1.EtcdRestore {
	e := &v1alpha1.EtcdRestore{Spec: v1alpha1.EtcdRestoreSpec{Suspend: suspended}, Status: v1alpha1.EtcdRestoreStatus{Phase: phase, Message: "of ours"}}
	for _, c := range conditions {
		e.Status.Conditions = append(e.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
	}
	return e
}

// saving returns the EtcdBackup of the old members in a phase.
func saving(phase v1alpha1.Phase) *v1alpha1.EtcdBackup {
	return &v1alpha1.EtcdBackup{Status: v1alpha1.EtcdBackupStatus{Phase: phase}}
}

// pods returns old members of which some run.
func pods(running, others int) (all []member) {
	for range running {
		all = append(all, member{name: "old", created: now.Add(-time.Hour), running: true})
	}
	for range others {
		all = append(all, member{name: "old", created: now.Add(-time.Hour)})
	}
	return all
}

// TestNext follows a restore that moves a cluster, and takes each of its branches.
func TestNext(t *testing.T) {
	staged := restoring("Staging", true, v1alpha1.ConditionStaged)
	deleted, back := staged.DeepCopy(), staged.DeepCopy()
	deleted.DeletionTimestamp, back.Spec.Rollback = &metav1.Time{Time: now}, true
	stale := saving("Completed")
	stale.Status.Last = &v1alpha1.BackupStatus{Time: metav1.Time{Time: now.Add(-time.Hour)}}
	for name, c := range map[string]struct {
		facts facts
		want  act
		why   string
	}{
		"there is no cluster":            {facts{}, wait, "neither an EtcdCluster nor a StatefulSet etcd"},
		"only the EtcdCluster exists":    {facts{cluster: true, detached: true, members: pods(3, 0)}, create, ""},
		"its operator runs":              {facts{cluster: true, operator: "etcd-operator-x", members: pods(3, 0)}, wait, "pod etcd-operator-x"},
		"the StatefulSet exists":         {facts{cluster: true, detached: true, statefulSet: true, members: pods(3, 0)}, order, ""},
		"the StatefulSet exists alone":   {facts{statefulSet: true}, order, ""},
		"the order is old":               {facts{statefulSet: true, created: now.Add(-2 * time.Hour)}, end, "create it again"},
		"an old order has begun":         {facts{statefulSet: true, created: now.Add(-2 * time.Hour), ours: restoring("Staging", true)}, wait, "Staging"},
		"the new data is built":          {facts{statefulSet: true, ours: restoring("Staging", true)}, wait, "of ours"},
		"the operator came back":         {facts{statefulSet: true, operator: "o", ours: staged}, wait, "pod o"},
		"the new data is complete":       {facts{cluster: true, detached: true, members: pods(3, 0), statefulSet: true, ours: staged}, save, ""},
		"a quorum runs":                  {facts{cluster: true, detached: true, members: pods(2, 1), statefulSet: true, ours: staged}, save, ""},
		"one of three runs":              {facts{cluster: true, detached: true, members: pods(1, 2), statefulSet: true, ours: staged}, save, ""},
		"no old member runs":             {facts{cluster: true, detached: true, members: pods(0, 3), statefulSet: true, ours: staged}, fence, ""},
		"the Services are the cluster's": {facts{cluster: true, members: pods(3, 0), statefulSet: true}, detach, ""},
		"only Services are left":         {facts{cluster: true, statefulSet: true}, detach, ""},
		"the EtcdCluster was deleted":    {facts{members: pods(3, 0), statefulSet: true, ours: staged}, wait, "a deleted EtcdCluster"},
		"it has waited for long": {
			facts{cluster: true, detached: true, members: pods(0, 3), statefulSet: true, ours: staged, created: now.Add(-7 * time.Hour)}, end, "create it again",
		},
		"it is deleted": {facts{statefulSet: true, ours: deleted}, wait, "Staging"},
		"it goes back":  {facts{statefulSet: true, ours: back}, wait, "Staging"},
		"the backup is old": {
			facts{cluster: true, detached: true, members: pods(3, 0), statefulSet: true, ours: staged, saved: stale}, save, "",
		},
		"the backup runs":           {facts{cluster: true, detached: true, members: pods(3, 0), statefulSet: true, ours: staged, saved: saving("Running")}, wait, ""},
		"the backup has failed":     {facts{cluster: true, detached: true, members: pods(3, 0), statefulSet: true, ours: staged, saved: saving("Failed")}, wait, "failed: delete EtcdBackup"},
		"the backup is complete":    {facts{cluster: true, detached: true, members: pods(3, 0), statefulSet: true, ours: staged, saved: saving("Completed")}, fence, ""},
		"some old members are left": {facts{cluster: true, detached: true, members: pods(0, 1), statefulSet: true, ours: staged, fenced: now}, fence, ""},
		"the old members end": {
			facts{cluster: true, detached: true, members: []member{{name: "old", node: "n1", created: now.Add(-time.Hour), ending: true}}, statefulSet: true, ours: staged, fenced: now},
			wait, "only if its node n1 is lost",
		},
		"an old member ends for hours": {
			facts{cluster: true, detached: true, members: []member{{name: "old", node: "n1", created: now.Add(-9 * time.Hour), ending: true}}, statefulSet: true, ours: staged,
				fenced: now.Add(-6 * time.Hour), created: now.Add(-7 * time.Hour)},
			wait, "only if its node n1 is lost",
		},
		"the old members have ended":    {facts{cluster: true, detached: true, statefulSet: true, ours: staged, fenced: now}, resume, ""},
		"there never was an old member": {facts{statefulSet: true, ours: staged}, resume, ""},
		"old members come back": {
			facts{cluster: true, detached: true, members: []member{{name: "new", created: now.Add(time.Minute)}}, statefulSet: true, ours: staged, fenced: now},
			wait, "pod new is newer",
		},
		"it continues":                 {facts{statefulSet: true, members: pods(3, 0), ours: restoring("Sealing", false, v1alpha1.ConditionStaged)}, wait, "Sealing"},
		"it has succeeded":             {facts{statefulSet: true, ours: restoring("Succeeded", false, v1alpha1.ConditionComplete)}, end, ""},
		"it has failed":                {facts{statefulSet: true, ours: restoring("Failed", false, v1alpha1.ConditionFailed)}, end, "of ours"},
		"it was refused, while paused": {facts{statefulSet: true, ours: restoring("Refused", true, v1alpha1.ConditionFailed)}, end, "of ours"},
	} {
		if c.facts.created.IsZero() {
			c.facts.created = now
		}
		got, why := next("etcd", c.facts, now)
		if got != c.want || !strings.Contains(why, c.why) || (why == "") != (name == "it has succeeded") {
			t.Errorf("%s: %s, because %q, want %s, because %q", name, got, why, c.want, c.why)
		}
	}
}

// TestSplit keeps the newest snapshots by the times of their backups. Their keys sort otherwise, and uploads that have failed do not count.
func TestSplit(t *testing.T) {
	const oldest, middle, failed, newest = "20261128T010000Z-0000000000000062", "20261128T020000Z-0000000000000063", "20261128T023000Z-0000000000000063", "20261128T030000Z-0000000000000064"
	r := record{URL: "s3://b/p", Snapshots: []snapshot{{newest, true}, {oldest, true}, {failed, false}, {middle, true}}}
	kept, excess := r.split(2)
	if !slices.Equal(kept.Snapshots, []snapshot{{newest, true}, {failed, false}, {middle, true}}) || !slices.Equal(excess, []snapshot{{oldest, true}}) || kept.URL != r.URL {
		t.Errorf("kept %v, excess %v", kept, excess)
	}
	kept, excess = r.split(5)
	if len(kept.Snapshots) != 4 || len(excess) != 0 {
		t.Errorf("kept %v, excess %v", kept, excess)
	}
	if !r.with(snapshot{failed, true}).isStored(failed) || r.isStored(failed) || len(r.with(snapshot{failed, true}).Snapshots) != 4 {
		t.Errorf("stored: %v", r.with(snapshot{failed, true}))
	}
}
