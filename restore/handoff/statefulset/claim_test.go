package statefulset_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/statefulset"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// as returns the Manager of another restore.
func (w *world) as(id string) *statefulset.Manager {
	o := w.options
	o.ID = id
	return statefulset.New(o)
}

const otherID = "fedcba9876543210"

// TestOneRestoreAtATime checks that a claim keeps others waiting until it is lifted, and names its restore. Records of several restores stay
// next to one another.
func TestOneRestoreAtATime(t *testing.T) {
	w := newWorld(t, "parallel")
	one, two := w.manager(), w.as(otherID)
	w.plan()
	r := w.record
	other := handoff.New(otherID, handoff.Orders{}, time.Now())
	must(t, one.Save(t.Context(), handoff.Record{}, r))
	for range 2 { // Take can be repeated
		wantDone(t, true)(one.Take(t.Context(), r))
	}
	p, err := two.Take(t.Context(), other)
	if err != nil || p.Done || !strings.Contains(p.Waiting, "restore "+restoreID+" (phase Pending) has claimed StatefulSet payments/etcd") {
		t.Fatalf("%+v, %v", p, err)
	}
	for range 2 {
		wantDone(t, true)(one.Lift(t.Context(), r))
	}
	wantDone(t, true)(two.Take(t.Context(), other))
	wantDone(t, false)(one.Take(t.Context(), r)) // to go back
	wantDone(t, true)(one.Lift(t.Context(), r))  // it has no claim that it could end
	must(t, two.Save(t.Context(), handoff.Record{}, other))

	got, err := one.Load(t.Context(), "")
	if err != nil || got.ID != otherID {
		t.Errorf("the claim is of %+v, %v", got, err)
	}
	got, err = two.Load(t.Context(), restoreID)
	if err != nil || got.ID != restoreID || got.Plan.ID != r.Plan.ID || !got.Since.Equal(r.Since) {
		t.Errorf("%+v, %v", got, err)
	}
	ended := r
	ended.Step = handoff.None
	must(t, one.Save(t.Context(), r, ended))
	_, err = one.Load(t.Context(), restoreID)
	if fault.KindOf(err) != fault.NotFound {
		t.Errorf("%v", err)
	}
	wantDone(t, true)(two.Lift(t.Context(), other))
	endedOther := other
	endedOther.Step = handoff.None
	must(t, two.Save(t.Context(), other, endedOther))
	var left corev1.ConfigMapList
	must(t, w.client.List(t.Context(), &left))
	if len(left.Items) != 0 {
		t.Errorf("the ConfigMap stays: %+v", left.Items)
	}
	_, err = one.Load(t.Context(), "")
	if fault.KindOf(err) != fault.NotFound {
		t.Errorf("%v", err)
	}
}

// TestOrdersAreRememberedInTurn carries out two orders in turn, as if each were deleted and created again: each is carried out once. The
// oldest are forgotten.
func TestOrdersAreRememberedInTurn(t *testing.T) {
	w := newWorld(t, "parallel")
	w.plan()
	refused := func(origin string) bool {
		w.options.Origin = origin
		_, err := w.manager().Take(t.Context(), handoff.New(restoreID, handoff.Orders{}, time.Now()))
		if err != nil && (fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "was restored by "+origin+" already")) {
			t.Fatal(err)
		}
		return err != nil
	}
	ended := w.record
	ended.End, ended.Down = handoff.Succeeded, time.Now()
	carryOut := func(origin string) {
		if refused(origin) {
			t.Fatalf("%s is refused", origin)
		}
		for done := false; !done; {
			p, err := w.manager().Lift(t.Context(), ended)
			must(t, err)
			done = p.Done
		}
	}
	carryOut("nightly@1")
	carryOut("weekly@1")
	carryOut("nightly@2")
	for _, origin := range []string{"nightly@1", "weekly@1", "nightly@2"} {
		if !refused(origin) {
			t.Errorf("%s is carried out again", origin)
		}
	}
	for i := range 20 {
		carryOut(fmt.Sprintf("hourly-%d@1", i))
	}
	if refused("nightly@1") || !refused("hourly-19@1") || len(w.set().Annotations["etcd-dr.io/restored"]) > 500 {
		t.Errorf("%q", w.set().Annotations)
	}
}

// TestOldRecordsGo stores records until there are too many: those go that ended first, and never one that is under way. Too many that
// wait are refused.
func TestOldRecordsGo(t *testing.T) {
	w := newWorld(t, "parallel")
	begin := time.Unix(1_700_000_000, 0).UTC()
	id := func(n int) string { return fmt.Sprintf("%016x", n) }
	stored := func(n int) bool {
		_, err := w.manager().Load(t.Context(), id(n))
		return err == nil
	}
	for n := range 40 {
		r := handoff.New(id(n), handoff.Orders{}, begin.Add(time.Duration(n)*time.Hour))
		must(t, w.as(r.ID).Save(t.Context(), handoff.Record{}, r))
		if n%2 == 0 {
			ended := r
			ended.Phase, ended.Step = handoff.Succeeded, handoff.Keep
			must(t, w.as(r.ID).Save(t.Context(), r, ended))
		}
	}
	for n := range 40 {
		want := n%2 == 1 || n >= 8
		if stored(n) != want {
			t.Errorf("record %d is stored: %t", n, !want)
		}
	}
	var err error
	for n := 40; err == nil && n < 1000; n++ {
		err = w.as(id(n)).Save(t.Context(), handoff.Record{}, handoff.New(id(n), handoff.Orders{}, begin))
	}
	if err == nil || handoff.IsFinal(err) || !strings.Contains(err.Error(), "64 restores of StatefulSet payments/etcd wait already") {
		t.Errorf("%v", err)
	}
}

// TestRecordOfAnotherProcess lets two processes continue a restore: the slower one has to load the record again.
func TestRecordOfAnotherProcess(t *testing.T) {
	w := newWorld(t, "parallel")
	m := w.manager()
	first := w.record
	must(t, m.Save(t.Context(), handoff.Record{}, first))
	second, third := first, first
	second.Waiting, third.Waiting = "a", "b"
	must(t, m.Save(t.Context(), first, second))
	for name, err := range map[string]error{
		"the slower one": m.Save(t.Context(), first, third), "a new one": m.Save(t.Context(), handoff.Record{}, third),
	} {
		if fault.KindOf(err) != fault.Busy || handoff.IsFinal(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	loaded, err := m.Load(t.Context(), restoreID)
	must(t, err)
	must(t, m.Save(t.Context(), loaded, third))
}

// TestConflictsAreNoErrors changes an object between its read and its write: the step is taken again.
func TestConflictsAreNoErrors(t *testing.T) {
	w := newWorld(t, "parallel")
	w.plan()
	strike := func() {
		change(w, "etcd", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds++ })
	}
	w.intercept(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		strike()
		return c.Patch(ctx, o, p, opts...)
	}})
	p, err := w.manager().Fence(t.Context(), w.record.Handoff)
	if err != nil || p.Done || !strings.Contains(p.Waiting, "StatefulSet payments/etcd was changed at the same time") || *w.set().Spec.Replicas != 3 {
		t.Errorf("%+v, %v", p, err)
	}

	w.intercept(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		wantDone(t, true)(statefulset.New(statefulset.Options{Client: c, Namespace: namespace, Name: "etcd", ID: otherID}).Take(ctx, handoff.Record{}))
		return c.Create(ctx, o, opts...)
	}})
	p, err = w.manager().Take(t.Context(), w.record)
	if err != nil || p.Done || !strings.Contains(p.Waiting, "another restore claims") {
		t.Errorf("%+v, %v", p, err)
	}
	p, err = w.manager().Take(t.Context(), w.record)
	if err != nil || p.Done || !strings.Contains(p.Waiting, otherID) {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestErrorsOfTheAPIServer checks which errors end a restore.
func TestErrorsOfTheAPIServer(t *testing.T) {
	things := schema.GroupResource{Resource: "things"}
	for _, c := range []struct {
		err   error
		final bool
	}{
		{apierrors.NewForbidden(things, "x", errors.New("no")), true},
		{apierrors.NewUnauthorized("no"), true},
		{apierrors.NewNotFound(things, "x"), true},
		{apierrors.NewServiceUnavailable("later"), false},
		{context.DeadlineExceeded, false},
	} {
		w := newWorld(t, "parallel")
		w.plan()
		w.intercept(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return c.err
		}})
		_, err := w.manager().Inspect(t.Context())
		_, fenceErr := w.manager().Fence(t.Context(), w.record.Handoff)
		_, doErr := w.manager().Do(t.Context(), w.record, handoff.DoSeal)
		for _, err := range []error{err, fenceErr, doErr} {
			if err == nil || handoff.IsFinal(err) != c.final {
				t.Errorf("%v becomes %v, final: %t", c.err, err, handoff.IsFinal(err))
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantDone returns a check of the results of a step.
func wantDone(t *testing.T, done bool) func(handoff.Progress, error) {
	t.Helper()
	return func(p handoff.Progress, err error) {
		t.Helper()
		if err != nil || p.Done != done {
			t.Fatalf("%+v, %v; want done: %t", p, err, done)
		}
	}
}
