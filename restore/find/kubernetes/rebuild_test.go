package kubernetes_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/restore/find/kubernetes"
)

// objects decodes one JSON object per line.
func objects(t *testing.T, lines string) (all []kubernetes.Object) {
	t.Helper()
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		o, err := kubernetes.Decode([]byte(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, o)
	}
	return all
}

const owned = `"ownerReferences":[{"kind":"X","name":"x","uid":"1"}]`

// namespaceObjects are in key order.
const namespaceObjects = `
{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","metadata":{"name":"apps.example.org"},"spec":{"group":"example.org","names":{"kind":"App"}}}
{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","metadata":{"name":"others.example.org"},"spec":{"group":"example.org","names":{"kind":"Other"}}}
{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kube-root-ca.crt","namespace":"prod"}}
{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","namespace":"prod"}}
{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"rendered","namespace":"prod",` + owned + `}}
{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"leader","namespace":"prod"}}
{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"prod"}}
{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"web-1","namespace":"prod","labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"}}}
{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"outside-1","namespace":"prod"}}
{"apiVersion":"v1","kind":"Event","metadata":{"name":"web.1","namespace":"prod"}}
{"apiVersion":"example.org/v1","kind":"App","metadata":{"name":"shop","namespace":"prod"}}
{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"web","namespace":"prod"}}
{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"done","namespace":"prod"},"status":{"conditions":[{"type":"Complete","status":"True"}]}}
{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"failed","namespace":"prod"},"status":{"conditions":[{"type":"Failed","status":"True"}]}}
{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"running","namespace":"prod"},"status":{"active":1}}
{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"clean-1","namespace":"prod",` + owned + `}}
{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"prod"}}
{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"closed","namespace":"prod"}}
{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"kept"},"spec":{"persistentVolumeReclaimPolicy":"Retain"}}
{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"lost"},"spec":{"persistentVolumeReclaimPolicy":"Delete"}}
{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data-0","namespace":"prod","annotations":{"pv.kubernetes.io/bound-by-controller":"yes"}},"spec":{"volumeName":"lost"}}
{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data-1","namespace":"prod"},"spec":{"volumeName":"kept"}}
{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data-2","namespace":"prod"},"spec":{}}
{"apiVersion":"v1","kind":"Pod","metadata":{"name":"alone","namespace":"prod"},"status":{"phase":"Running"}}
{"apiVersion":"v1","kind":"Pod","metadata":{"name":"ended","namespace":"prod"},"status":{"phase":"Succeeded"}}
{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-1","namespace":"prod",` + owned + `},"status":{"phase":"Running"}}
{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"reader","namespace":"prod"}}
{"apiVersion":"v1","kind":"Secret","metadata":{"name":"made","namespace":"prod",` + owned + `}}
{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default","namespace":"prod"}}
{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"runner","namespace":"prod"}}
{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"outside","namespace":"prod"}}
{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"web","namespace":"prod"}}
{"apiVersion":"v1","kind":"Service","metadata":{"name":"outside","namespace":"prod"},"spec":{}}
{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"prod"},"spec":{"selector":{"app":"web"}}}
`

func TestRebuildOrdersAndLeavesOut(t *testing.T) {
	want := []string{
		"Namespace prod", "CustomResourceDefinition apps.example.org", "ServiceAccount prod/runner",
		"NetworkPolicy prod/closed", "Role prod/reader", "ConfigMap prod/settings", "Secret prod/made",
		"PersistentVolumeClaim prod/data-0", "PersistentVolumeClaim prod/data-1", "PersistentVolumeClaim prod/data-2",
		"Service prod/outside", "Service prod/web", "Deployment prod/web", "Job prod/running", "Pod prod/alone",
		"App prod/shop", "EndpointSlice prod/outside-1", "Endpoints prod/outside", "Ingress prod/web",
	}
	all := objects(t, namespaceObjects)
	got := kubernetes.Rebuild(all, kubernetes.RebuildOptions{})
	diff := cmp.Diff(want, names(got))
	if diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	left := len(all) - len(want) - 3
	if got.LeftOut != left { // one definition and two volumes are not in the namespace
		t.Errorf("%d left out, want %d", got.LeftOut, left)
	}
	notes := strings.Join(got.Notes, "\n")
	for _, words := range []string{"prod/running had not finished", "data-0: its volume lost was deleted", "kubectl patch pv kept"} {
		if !strings.Contains(notes, words) {
			t.Errorf("no note has %q:\n%s", words, notes)
		}
	}
	with := names(kubernetes.Rebuild(all, kubernetes.RebuildOptions{FinishedJobs: true}))
	if !slices.Contains(with, "Job prod/done") || !slices.Contains(with, "Job prod/failed") || slices.Contains(with, "Job prod/clean-1") {
		t.Errorf("with finished Jobs: %q", with)
	}
}

func TestRebuildOfClaims(t *testing.T) {
	all := objects(t, namespaceObjects)
	volumes := map[string]any{}
	for _, o := range kubernetes.Rebuild(all, kubernetes.RebuildOptions{}).Objects {
		spec, _ := o["spec"].(map[string]any)
		if strings.HasPrefix(o.String(), "PersistentVolumeClaim") {
			volumes[o.String()] = spec["volumeName"]
		}
	}
	want := map[string]any{
		"PersistentVolumeClaim prod/data-0": nil, "PersistentVolumeClaim prod/data-1": "kept", "PersistentVolumeClaim prod/data-2": nil,
	}
	diff := cmp.Diff(want, volumes)
	if diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func names(r kubernetes.Rebuilt) (all []string) {
	for _, o := range r.Objects {
		all = append(all, o.String())
	}
	return all
}
