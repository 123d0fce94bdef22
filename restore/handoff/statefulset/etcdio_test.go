package statefulset_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// controller returns the name of the object that controls the StatefulSet; "": none does.
func (w *world) controller() string {
	owner := metav1.GetControllerOf(w.set())
	if owner == nil {
		return ""
	}
	return owner.Name
}

// lift ends the restore, which has stopped the members.
func (w *world) lift(end handoff.Phase) {
	w.t.Helper()
	w.record.End, w.record.Down = end, w.record.Since
	for p := (handoff.Progress{}); !p.Done; {
		var err error
		p, err = w.manager().Lift(w.t.Context(), w.record)
		must(w.t, err)
	}
}

// TestControlIsTakenAndGivenBack restores a StatefulSet of etcd-io's operator. While it has 0 replicas, and until the members are calm, its
// EtcdCluster does not control it. The EtcdCluster owns it all the time.
func TestControlIsTakenAndGivenBack(t *testing.T) {
	for name, end := range map[string]handoff.Phase{"success": handoff.Succeeded, "the way back": handoff.Failed} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "etcdio")
			w.plan()
			if w.controller() != "main" {
				t.Fatal("Inspect has taken control")
			}
			before := w.set().OwnerReferences
			wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
			set := w.set()
			if *set.Spec.Replicas != 0 || w.controller() != "" || len(set.OwnerReferences) != 1 {
				t.Fatalf("%d replicas, owners %+v", *set.Spec.Replicas, set.OwnerReferences)
			}
			wantDone(t, true)(w.manager().Fence(t.Context(), w.record.Handoff))
			start := w.manager().Release
			if end == handoff.Failed {
				start = w.manager().Return
			}
			wantDone(t, false)(start(t.Context(), w.record.Handoff)) // the Service
			wantDone(t, false)(start(t.Context(), w.record.Handoff))
			if *w.set().Spec.Replicas != 3 || w.controller() != "" {
				t.Errorf("%d replicas, controlled by %q", *w.set().Spec.Replicas, w.controller())
			}
			w.lift(end)
			after := w.set()
			if w.controller() != "main" || after.OwnerReferences[0].UID != before[0].UID || len(after.Annotations) != 0 {
				t.Errorf("owners %+v, before %+v; annotations %v", after.OwnerReferences, before, after.Annotations)
			}
		})
	}
}

// TestControlWithoutMembers ends a restore whose old members cannot be started: the operator would take 0 replicas for a new cluster. The next
// restore gives control back.
func TestControlWithoutMembers(t *testing.T) {
	w := newWorld(t, "etcdio")
	w.plan()
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	wantDone(t, true)(w.manager().Fence(t.Context(), w.record.Handoff))
	w.lift(handoff.Failed)
	if w.controller() != "" || len(w.set().Annotations) != 0 {
		t.Errorf("it is controlled by %q: %v", w.controller(), w.set().Annotations)
	}
	w.options.Backup = nil
	for _, m := range w.record.Handoff.Members {
		w.options.Backup = append(w.options.Backup, m.Member)
	}
	w.plan()
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	for range 2 {
		wantDone(t, false)(w.manager().Release(t.Context(), w.record.Handoff))
	}
	w.lift(handoff.Succeeded)
	if w.controller() != "main" || *w.set().Spec.Replicas != 3 {
		t.Errorf("it is controlled by %q, with %d replicas", w.controller(), *w.set().Spec.Replicas)
	}
}

// TestControlIsTakenFromAnotherCluster creates the StatefulSet again under another EtcdCluster, as Kubernetes and the operator do if the first one
// is deleted and created again.
func TestControlIsTakenFromAnotherCluster(t *testing.T) {
	w := newWorld(t, "etcdio")
	w.plan()
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	change(w, "main", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) {
		s.OwnerReferences[0].UID, s.OwnerReferences[0].Controller, s.Annotations, s.Spec.Replicas = "other", new(true), nil, new(int32(1))
	})
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	if w.controller() != "" || *w.set().Spec.Replicas != 0 {
		t.Errorf("it is controlled by %q, with %d replicas", w.controller(), *w.set().Spec.Replicas)
	}
}

// TestOrdersAreRememberedWithoutAnnotations lets the operator remove the annotations of the StatefulSet, as it does whenever it scales it: an order
// that was carried out is refused nevertheless.
func TestOrdersAreRememberedWithoutAnnotations(t *testing.T) {
	w := newWorld(t, "etcdio")
	w.options.Origin = "nightly@1f3a"
	w.plan()
	w.record.Step = handoff.Take
	w.lift(handoff.Succeeded)
	change(w, "main", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.Annotations = nil })
	w.options.ID = "fedcba9876543210"
	_, err := w.manager().Take(t.Context(), w.record)
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "was restored by nightly@1f3a already") {
		t.Error(err)
	}
}

// TestRemediesOfEtcdIO checks the remedies where the size of the EtcdCluster is the number of members.
func TestRemediesOfEtcdIO(t *testing.T) {
	w := newWorld(t, "etcdio")
	w.plan()
	change(w, "main", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(5)) })
	_, err := w.manager().Fence(t.Context(), w.record.Handoff)
	const grown = "EtcdCluster payments/main has 5 replicas, and the restore is planned for 3: scale it to 3, or create a new restore"
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), grown) {
		t.Error(err)
	}
	w.create(newClaim("etcd-data-main-5"))
	first := w.inspect().Findings[0]
	if !first.Refuses || !strings.HasSuffix(first.String(), "serves its old data: delete the claim") {
		t.Error(first)
	}
	change(w, "main", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) {
		s.OwnerReferences[0].Controller, s.Annotations = new(false), map[string]string{"etcd-dr.io/restore": restoreID, "etcd-dr.io/saved": "{}"}
	})
	_, err = w.manager().Rebuild(t.Context(), "")
	const back = `dr resume, and kubectl -n payments patch statefulset main --type=json -p '[{"op":"add","path":"/metadata/ownerReferences/0/controller","value":true}]'`
	if err == nil || !strings.Contains(err.Error(), back) {
		t.Error(err)
	}
}

// TestControlIsForbidden checks that the first look at a StatefulSet shows that the restore may not take control, and changes nothing.
func TestControlIsForbidden(t *testing.T) {
	w := newWorld(t, "etcdio")
	var asked []string
	w.intercept(interceptor.Funcs{Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, options ...client.PatchOption) error {
		asked = (&client.PatchOptions{}).ApplyOptions(options).DryRun
		return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "statefulsets"}, o.GetName(), errors.New("cannot set an ownerRef"))
	}})
	_, err := w.manager().Inspect(t.Context())
	if !errors.Is(err, handoff.ErrForbidden) || !strings.Contains(err.Error(), "cannot take control of StatefulSet payments/main away from EtcdCluster main") {
		t.Error(err)
	}
	if len(asked) != 1 || w.controller() != "main" {
		t.Errorf("dry run %q, controlled by %q", asked, w.controller())
	}
}

// TestControlOfAnotherOwnerStays lets another owner take control meanwhile: a StatefulSet may have only one controller.
func TestControlOfAnotherOwnerStays(t *testing.T) {
	w := newWorld(t, "etcdio")
	w.plan()
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	change(w, "main", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) {
		s.OwnerReferences = append(s.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Other", Name: "other", UID: "1", Controller: new(true)})
	})
	w.lift(handoff.Failed)
	if w.controller() != "other" {
		t.Errorf("it is controlled by %q: %+v", w.controller(), w.set().OwnerReferences)
	}
}

// TestVariablesOfConfigMaps checks which variables a container gets from a ConfigMap.
func TestVariablesOfConfigMaps(t *testing.T) {
	secret := corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{}}
	for name, c := range map[string]struct {
		edit func(w *world, etcd *corev1.Container)
		want string // the data dir; "": it is not known
	}{
		"a ConfigMap": {func(*world, *corev1.Container) {}, "/var/lib/etcd"},
		"its own prevails": {func(_ *world, c *corev1.Container) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "ETCD_DATA_DIR", Value: "/var/lib/etcd/own"})
		}, "/var/lib/etcd/own"},
		"a flag prevails":     {func(_ *world, c *corev1.Container) { c.Args = append(c.Args, "--data-dir=/var/lib/etcd/flag") }, "/var/lib/etcd/flag"},
		"the last one":        {func(w *world, c *corev1.Container) { w.variables(c, "", "/var/lib/etcd/last") }, "/var/lib/etcd/last"},
		"a prefix":            {func(w *world, c *corev1.Container) { w.variables(c, "X_", "/var/lib/etcd/last") }, "/var/lib/etcd"},
		"a dollar is no sign": {func(w *world, c *corev1.Container) { w.variables(c, "", "/var/lib/etcd/$(POD_NAME)") }, "/var/lib/etcd/$(POD_NAME)"},
		"it does not exist":   {func(_ *world, c *corev1.Container) { c.EnvFrom[0].ConfigMapRef.Name = "other" }, ""},
		"a Secret before it":  {func(_ *world, c *corev1.Container) { c.EnvFrom = append([]corev1.EnvFromSource{secret}, c.EnvFrom...) }, "/var/lib/etcd"},
		"a Secret after it":   {func(_ *world, c *corev1.Container) { c.EnvFrom = append(c.EnvFrom, secret) }, ""},
		"a Secret":            {func(_ *world, c *corev1.Container) { c.EnvFrom[0] = secret }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "etcdio")
			change(w, "main", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { c.edit(w, etcd(s)) })
			h := w.inspect()
			if h.Members[0].DataDir != c.want {
				t.Errorf("the data dir is %q; %s", h.Members[0].DataDir, h.Findings)
			}
		})
	}
}

// TestDisasterRecoveryFromAConfigMap refuses a variable of bitnami's image that a restore cannot change, unless the container has its own.
func TestDisasterRecoveryFromAConfigMap(t *testing.T) {
	const want = "the image of bitnami would restore its own snapshot over the restored data (ETCD_DISASTER_RECOVERY, from a ConfigMap of " +
		"StatefulSet payments/main): set it to no there"
	w := newWorld(t, "etcdio")
	change(w, "main-state", &corev1.ConfigMap{}, func(c *corev1.ConfigMap) { c.Data["ETCD_DISASTER_RECOVERY"] = "yes" })
	first := w.inspect().Findings[0]
	if !first.Refuses || first.String() != want {
		t.Error(first)
	}
	change(w, "main", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) {
		etcd(s).Env = append(etcd(s).Env, corev1.EnvVar{Name: "ETCD_DISASTER_RECOVERY", Value: "no"})
	})
	first = w.inspect().Findings[0]
	if first.Refuses {
		t.Error(first)
	}
}

// variables adds a ConfigMap with a data dir to the variables of a container.
func (w *world) variables(c *corev1.Container, prefix, dataDir string) {
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "more"}, Data: map[string]string{"ETCD_DATA_DIR": dataDir}})
	from := corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "more"}}
	c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{Prefix: prefix, ConfigMapRef: &from})
}
