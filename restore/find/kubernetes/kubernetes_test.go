package kubernetes_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/etcd-dr/etcd-dr/restore/find/kubernetes"
)

// encode encodes an object as an API server stores it, with the API server's serializer.
func encode(t testing.TB, object runtime.Object) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	var buffer bytes.Buffer
	err := protobuf.NewSerializer(scheme, scheme).Encode(object, &buffer)
	if err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

func deployment() *appsv1.Deployment {
	replicas, surge := int32(3), intstr.FromString("25%")
	created := metav1.NewTime(time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC))
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "web", Image: "registry.example.org/web:1.2",
			Resources:      corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("1536Mi")}},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}},
		}}},
	}
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "prod", UID: types.UID("b0a9"), ResourceVersion: "12", Generation: 4, CreationTimestamp: created,
			Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "kept"}, Finalizers: []string{"example.org/keep"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.org/v1", Kind: "App", Name: "web", UID: "0815"}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: pod,
			Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge}},
		},
		Status: appsv1.DeploymentStatus{ReadyReplicas: 2},
	}
}

// Decode returns the JSON that the API server returns for the same protobuf.
func TestDecodeMatchesTheServer(t *testing.T) {
	for _, object := range []runtime.Object{
		deployment(),
		&corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "prod"}, Data: map[string][]byte{"token": {0, 255, 7}},
		},
		&corev1.Event{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
			ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "prod"},
			EventTime:  metav1.NewMicroTime(time.Date(2026, 11, 21, 9, 0, 0, 123456000, time.UTC)), Count: 1 << 30,
		},
	} {
		got, err := kubernetes.Decode(encode(t, object))
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		err = errors.Join(json.Unmarshal(want, &a), json.Unmarshal(text, &b))
		if err != nil {
			t.Fatal(err)
		}
		diff := cmp.Diff(a, b)
		if diff != "" {
			t.Error(diff)
		}
	}
}

// Applicable keeps everything that a person wrote, and removes everything that the API server refuses or that binds the object
// to missing ones.
func TestApplicable(t *testing.T) {
	o, err := kubernetes.Decode(encode(t, deployment()))
	if err != nil {
		t.Fatal(err)
	}
	text, err := o.Applicable().YAML()
	if err != nil {
		t.Fatal(err)
	}
	const want = `apiVersion: apps/v1
kind: Deployment
metadata:
  annotations:
    note: kept
  finalizers:
  - example.org/keep
  labels:
    app: web
  name: web
  namespace: prod
spec:
  replicas: 3
  selector:
    matchLabels:
      app: web
  strategy:
    rollingUpdate:
      maxSurge: 25%
  template:
    metadata:
      labels:
        app: web
    spec:
      containers:
      - image: registry.example.org/web:1.2
        name: web
        readinessProbe:
          tcpSocket:
            port: 8080
        resources:
          limits:
            memory: 1536Mi
`
	diff := cmp.Diff(want, string(text))
	if diff != "" {
		t.Error(diff)
	}
	var strict appsv1.Deployment
	err = yaml.UnmarshalStrict(text, &strict)
	if err != nil {
		t.Errorf("the API server would not take it: %v", err)
	}
	_, still := o["status"]
	if !still || o["metadata"].(map[string]any)["uid"] == nil {
		t.Error("the object itself was changed")
	}
}

// Custom resources are stored as JSON. Decode keeps all digits of their numbers, and their status.
func TestCustomResource(t *testing.T) {
	const stored = `{"apiVersion":"example.org/v1","kind":"App","metadata":{"name":"a","namespace":"prod","uid":"1",` +
		`"creationTimestamp":"2026-11-21T09:00:00Z"},"spec":{"count":9007199254740993},"status":{"phase":"Ready"}}` + "\n"
	o, err := kubernetes.Decode([]byte(stored))
	if err != nil {
		t.Fatal(err)
	}
	text, err := o.Applicable().YAML()
	if err != nil {
		t.Fatal(err)
	}
	want := "apiVersion: example.org/v1\nkind: App\nmetadata:\n  name: a\n  namespace: prod\nspec:\n  count: 9007199254740993\nstatus:\n  phase: Ready\n"
	diff := cmp.Diff(want, string(text))
	if diff != "" {
		t.Error(diff)
	}
}

func TestDecodeErrors(t *testing.T) {
	object := deployment()
	object.TypeMeta.Kind = "Unheard"
	unheard := encode(t, object)
	for _, test := range []struct {
		name, value string
		is          error
		says        string
	}{
		{"nothing", "", kubernetes.ErrNoObject, ""},
		{"text", "hello", kubernetes.ErrNoObject, ""},
		{"JSON that is no object", `{"a":1}`, kubernetes.ErrNoObject, ""},
		{"a list", `[1]`, kubernetes.ErrNoObject, ""},
		{"encrypted", "k8s:enc:aescbc:v1:key1:\x00\x01", kubernetes.ErrEncrypted, `with aescbc, key "key1"`},
		{"encrypted by KMS", "k8s:enc:kms:v2:vault:\x00\x01", kubernetes.ErrEncrypted, `with kms, key "vault"`},
		{"cut off", "k8s:enc:aes", kubernetes.ErrEncrypted, "unknown provider"},
		{"CBOR", "\xd9\xd9\xf7\xa1", kubernetes.ErrVersion, "it is CBOR"},
		{"no envelope", "k8s\x00\xff\xff", kubernetes.ErrVersion, "envelope"},
		{"another kind", string(unheard), kubernetes.ErrVersion, "apps/v1 Unheard"},
		{"cut off within", string(encode(t, deployment())[:200]), kubernetes.ErrVersion, ""},
	} {
		_, err := kubernetes.Decode([]byte(test.value))
		if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %v and %q", test.name, err, test.is, test.says)
		}
	}
}

func TestNamed(t *testing.T) {
	for key, want := range map[string]string{
		"/registry/pods/prod/web-0":                                        "Pod prod/web-0",
		"/registry/minions/n1":                                             "Node n1",
		"/registry/namespaces/prod":                                        "Namespace prod",
		"/registry/services/specs/prod/web":                                "Service prod/web",
		"/registry/services/endpoints/prod/web":                            "Endpoints prod/web",
		"/registry/clusterroles/system:node":                               "ClusterRole system:node",
		"/registry/apiextensions.k8s.io/customresourcedefinitions/a.b.org": "CustomResourceDefinition a.b.org",
		"/registry/apiregistration.k8s.io/apiservices/v1.apps":             "APIService v1.apps",
		"/registry/cert-manager.io/certificates/prod/web":                  "certificates.cert-manager.io prod/web",
		"/registry/cert-manager.io/clusterissuers/letsencrypt":             "clusterissuers.cert-manager.io letsencrypt",
		"/registry/workloads/prod/training":                                "Workload prod/training",
		"/registry/devicetaintrules/n1":                                    "DeviceTaintRule n1",
		"/registry/pods/prod":                                              "",
		"/registry/pods/prod/web-0/more":                                   "",
		"/registry/pods//web-0":                                            "",
		"/registry/ranges/serviceips":                                      "",
		"/registry/masterleases/10.0.0.1":                                  "",
		"/registry/":                                                       "",
		"/registry/health":                                                 "",
		"registry/pods/prod/web-0":                                         "",
		"/elsewhere/pods/prod/web-0":                                       "",
		"compact_rev_key":                                                  "",
	} {
		n, ok := kubernetes.Named(key)
		got := n.String()
		if ok != (want != "") || ok && got != want {
			t.Errorf("%s is %q, %v; want %q", key, got, ok, want)
		}
	}
}

// For any bytes Decode returns an object that can be printed, or an error.
func FuzzDecode(f *testing.F) {
	f.Add(encode(f, deployment()))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":7}`))
	f.Add([]byte("k8s:enc:aescbc:v1:key1:x"))
	f.Add([]byte(`{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","spec":{"versions":[7,{}],` +
		`"conversion":7,"additionalPrinterColumns":[7,{"JSONPath":7}]}}`))
	f.Add([]byte(`{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","spec":{"version":"v1",` +
		`"conversion":{"webhookClientConfig":{}}}}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		o, err := kubernetes.Decode(value)
		if err != nil {
			return
		}
		_, err = o.Applicable().YAML()
		if err != nil {
			t.Errorf("%q: %v", value, err)
		}
	})
}

// Applicable removes the fields that tie an object to a missing uid, and keeps fields that a person wrote in the same places.
func TestApplicableIsTiedToNoUID(t *testing.T) {
	const labels = `{"app":"a","batch.kubernetes.io/controller-uid":"1","controller-uid":"1"}`
	for _, test := range []struct{ kind, stored, want string }{
		{
			`"batch/v1","kind":"Job"`,
			`"metadata":{"labels":` + labels + `},"spec":{"selector":{"matchLabels":` + labels + `},"template":{"metadata":{"labels":` + labels + `}}}`,
			`"metadata":{"labels":{"app":"a"}},"spec":{"template":{"metadata":{"labels":{"app":"a"}}}}`,
		},
		{
			`"batch/v1","kind":"Job"`,
			`"spec":{"manualSelector":true,"selector":{"matchLabels":` + labels + `}}`,
			`"spec":{"manualSelector":true,"selector":{"matchLabels":` + labels + `}}`,
		},
		{
			`"v1","kind":"PersistentVolume"`,
			`"spec":{"claimRef":{"name":"c","resourceVersion":"2","uid":"1"}}`,
			`"spec":{"claimRef":{"name":"c"}}`,
		},
		{
			`"v1","kind":"PersistentVolumeClaim"`,
			`"metadata":{"annotations":{"a":"b","pv.kubernetes.io/bind-completed":"yes"}},"spec":{"volumeName":"v"}`,
			`"metadata":{"annotations":{"a":"b"}},"spec":{"volumeName":"v"}`,
		},
		{
			`"v1","kind":"Secret"`,
			`"metadata":{"annotations":{"kubernetes.io/service-account.name":"a","kubernetes.io/service-account.uid":"1"}}`,
			`"metadata":{"annotations":{"kubernetes.io/service-account.name":"a"}}`,
		},
		{`"example.org/v1","kind":"Job"`, `"spec":{"selector":1}`, `"spec":{"selector":1}`},                           // another group
		{`"batch/v1","kind":"Job"`, `"metadata":7,"spec":{"template":null}`, `"metadata":7,"spec":{"template":null}`}, // no server writes this
	} {
		o, err := kubernetes.Decode([]byte(`{"apiVersion":` + test.kind + `,` + test.stored + `}`))
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(o.Applicable())
		if err != nil {
			t.Fatal(err)
		}
		diff := cmp.Diff(`{"apiVersion":`+test.kind+`,`+test.want+`}`, string(text))
		if diff != "" {
			t.Error(diff)
		}
	}
}
