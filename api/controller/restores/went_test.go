package restores

import (
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// TestWentBackWithoutOldData checks that the message and the event of a restore that went back say that old data is lost, and do not say
// that it is in place.
func TestWentBackWithoutOldData(t *testing.T) {
	const reason = "ordered to go back; the old data of etcd-0, etcd-1 is lost"
	e := &v1alpha1.EtcdRestore{Status: v1alpha1.EtcdRestoreStatus{Phase: v1alpha1.RestorePhase(handoff.RollingBack)}}
	before := e.Status
	describe(e, handoff.Record{Phase: handoff.Failed, End: handoff.Failed, Step: handoff.Keep, KeepUntil: time.Now(), Reason: reason, Lost: []string{"etcd-0", "etcd-1"}})
	all := eventsOf(before, e.Status)
	if e.Status.Message != reason || len(all) != 1 || all[0].reason != eventWentBack || !strings.HasSuffix(all[0].message, reason) || strings.Contains(all[0].message, "in place") {
		t.Errorf("message %q, events %+v", e.Status.Message, all)
	}
}
