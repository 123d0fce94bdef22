package statefulset_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// TestRecordOfACommandIsRebuilt deletes the record of a restore that a command has begun, in each state of the StatefulSet. While the members
// are stopped, the restore goes back. Once they may have served restored data, it is refused, and changes nothing.
func TestRecordOfACommandIsRebuilt(t *testing.T) {
	for name, c := range map[string]struct {
		restore, saved string
		replicas       int32
		want           handoff.Step
		kind           fault.Kind
	}{
		"nothing was changed":    {"", "", 3, handoff.None, ""},
		"by another restore":     {otherID, `{"replicas":3,"stopped":true}`, 0, handoff.None, ""},
		"the members are down":   {restoreID, `{"replicas":3,"stopped":true}`, 0, handoff.Resuspend, ""},
		"the members were begun": {restoreID, `{"replicas":3}`, 3, handoff.None, fault.Refused},
	} {
		w := newWorld(t, "parallel", func(s *appsv1.StatefulSet) {
			s.Annotations = map[string]string{"etcd-dr.io/restore": c.restore, "etcd-dr.io/saved": c.saved}
		})
		change(w, "etcd", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(c.replicas) })
		r, err := w.manager().Rebuild(t.Context(), newOrder().Encode())
		if r.Step != c.want || fault.KindOf(err) != c.kind {
			t.Errorf("%s: step %q, %v", name, r.Step, err)
		}
		if c.kind != "" && !strings.Contains(err.Error(), "kubectl -n payments annotate statefulset etcd etcd-dr.io/restore- etcd-dr.io/saved-, and dr resume") {
			t.Errorf("%s: %v", name, err)
		}
		holder, err := w.manager().Load(t.Context(), "")
		if (err == nil) != (c.want != handoff.None) || holder.Step != c.want || len(holder.Handoff.Members) != len(r.Handoff.Members) {
			t.Errorf("%s: the claim is of %+v, %v", name, holder, err)
		}
	}
}

// TestRebuiltRecordWaitsForTheClaim checks that a record is not made again while another restore has claimed the StatefulSet.
func TestRebuiltRecordWaitsForTheClaim(t *testing.T) {
	w := newWorld(t, "parallel", func(s *appsv1.StatefulSet) {
		s.Annotations = map[string]string{"etcd-dr.io/restore": restoreID, "etcd-dr.io/saved": `{"replicas":3,"stopped":true}`}
	})
	wantDone(t, true)(w.as(otherID).Take(t.Context(), handoff.New(otherID, handoff.Orders{}, time.Now())))
	_, err := w.manager().Rebuild(t.Context(), newOrder().Encode())
	if fault.KindOf(err) != fault.Busy || !strings.Contains(err.Error(), "restore "+otherID) {
		t.Errorf("%v", err)
	}
}

// TestLiftPutsBackWhatTheAnnotationHas ends a restore whose record does not show that it has changed the StatefulSet. While members are
// stopped, the annotation stays: their way back needs it.
func TestLiftPutsBackWhatTheAnnotationHas(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		saved := `{"replicas":3,"hidesNotReadyAddresses":true}`
		if stopped {
			saved = `{"replicas":3,"hidesNotReadyAddresses":true,"stopped":true}`
		}
		w := newWorld(t, "parallel", func(s *appsv1.StatefulSet) {
			s.Annotations = map[string]string{"etcd-dr.io/restore": restoreID, "etcd-dr.io/saved": saved}
		})
		change(w, w.set().Spec.ServiceName, &corev1.Service{}, func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true })
		for range 4 {
			_, err := w.manager().Lift(t.Context(), handoff.Record{ID: restoreID})
			must(t, err)
		}
		wantDone(t, true)(w.manager().Lift(t.Context(), handoff.Record{ID: restoreID}))
		published := get(w, w.set().Spec.ServiceName, &corev1.Service{}).Spec.PublishNotReadyAddresses
		if published != stopped || (w.set().Annotations["etcd-dr.io/saved"] == "") == stopped {
			t.Errorf("stopped: %t: publishes: %t, annotations %v", stopped, published, w.set().Annotations)
		}
	}
}
