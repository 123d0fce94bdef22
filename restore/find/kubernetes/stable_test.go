package kubernetes_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	batchv1 "k8s.io/api/batch/v1"
	batchv1beta1 "k8s.io/api/batch/v1beta1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/etcd-dr/etcd-dr/restore/find/kubernetes"
)

// An object that was stored as a beta is returned in the stable version with the same meaning: each field has the same number,
// type and name in both messages.
func TestGraduatedKinds(t *testing.T) {
	for _, pair := range []struct{ beta, stable runtime.Object }{
		{&admissionregistrationv1beta1.MutatingAdmissionPolicy{}, &admissionregistrationv1.MutatingAdmissionPolicy{}},
		{&admissionregistrationv1beta1.MutatingAdmissionPolicyBinding{}, &admissionregistrationv1.MutatingAdmissionPolicyBinding{}},
		{&admissionregistrationv1beta1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicy{}},
		{&admissionregistrationv1beta1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}},
		{&batchv1beta1.CronJob{}, &batchv1.CronJob{}},
		{&networkingv1beta1.IPAddress{}, &networkingv1.IPAddress{}},
		{&networkingv1beta1.ServiceCIDR{}, &networkingv1.ServiceCIDR{}},
		{&resourcev1beta2.DeviceClass{}, &resourcev1.DeviceClass{}},
		{&resourcev1beta2.ResourceClaim{}, &resourcev1.ResourceClaim{}},
		{&resourcev1beta2.ResourceClaimTemplate{}, &resourcev1.ResourceClaimTemplate{}},
		{&resourcev1beta2.ResourceSlice{}, &resourcev1.ResourceSlice{}},
		{&storagev1beta1.CSIStorageCapacity{}, &storagev1.CSIStorageCapacity{}},
		{&storagev1beta1.VolumeAttributesClass{}, &storagev1.VolumeAttributesClass{}},
	} {
		beta, stable := reflect.TypeOf(pair.beta).Elem(), reflect.TypeOf(pair.stable).Elem()
		diff := cmp.Diff(message(beta), message(stable))
		if diff != "" {
			t.Errorf("%s is another message as %s:\n%s", beta, stable, diff)
		}
		as := kindOf(t, beta)
		pair.beta.GetObjectKind().SetGroupVersionKind(as)
		o, err := kubernetes.Decode(encode(t, pair.beta))
		if err != nil {
			t.Fatal(err)
		}
		if o["apiVersion"] != as.GroupVersion().String() || o["kind"] != as.Kind {
			t.Errorf("%s is decoded as %v %v, not as it is stored", beta, o["apiVersion"], o["kind"])
		}
		clean := o.Applicable()
		if clean["apiVersion"] != as.Group+"/v1" || clean["status"] != nil {
			t.Errorf("%s is applied as %v, with the status %v", beta, clean["apiVersion"], clean["status"])
		}
	}
}

// A budget of policy/v1beta1 that selects nothing would select everything in policy/v1.
func TestKindsThatChangedAreUnknown(t *testing.T) {
	_, err := kubernetes.Decode(encode(t, &policyv1beta1.PodDisruptionBudget{
		TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1beta1", Kind: "PodDisruptionBudget"},
	}))
	if err == nil || !strings.Contains(err.Error(), "policy/v1beta1 PodDisruptionBudget") {
		t.Errorf("%v", err)
	}
}

// kindOf returns the API's name of a type in k8s.io/api. The type's folder is the version, and precedes the kind.
func kindOf(t *testing.T, of reflect.Type) schema.GroupVersionKind {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1beta1.AddToScheme, batchv1beta1.AddToScheme, networkingv1beta1.AddToScheme,
		resourcev1beta2.AddToScheme, storagev1beta1.AddToScheme,
	} {
		err := add(s)
		if err != nil {
			t.Fatal(err)
		}
	}
	for kind, known := range s.AllKnownTypes() {
		if known == of {
			return kind
		}
	}
	t.Fatalf("%s is of no kind", of)
	return schema.GroupVersionKind{}
}

// message returns the fields below a type, each with its encoding. It does not descend into types that both versions share.
func message(of reflect.Type) (fields []string) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || strings.HasPrefix(of.PkgPath(), "k8s.io/apimachinery/") {
		return []string{of.Kind().String()}
	}
	for i := range of.NumField() {
		field := of.Field(i)
		if field.Type == of || field.Type == reflect.PointerTo(of) || field.Type == reflect.SliceOf(of) {
			continue
		}
		here := fmt.Sprintf("%s %s %s", field.Name, field.Tag.Get("json"), field.Tag.Get("protobuf"))
		for _, below := range message(field.Type) {
			fields = append(fields, here+" / "+below)
		}
	}
	return fields
}

// API servers store definitions as v1beta1 and serve only v1.
func TestDefinitionIsApplicable(t *testing.T) {
	for _, test := range []struct{ stored, want string }{
		{
			// fields that the versions share
			`"versions":[{"name":"v1","served":true,"storage":true},{"name":"v1alpha1","served":true,"storage":false}],"version":"v1",
			"validation":{"openAPIV3Schema":{"type":"object"}},"subresources":{"status":{}},"selectableFields":[{"jsonPath":".spec.a"}],
			"additionalPrinterColumns":[{"name":"A","type":"string","JSONPath":".spec.a"}],
			"conversion":{"strategy":"None"},"preserveUnknownFields":false`,
			`
  conversion:
    strategy: None
  preserveUnknownFields: false
  versions:
  - additionalPrinterColumns:
    - jsonPath: .spec.a
      name: A
      type: string
    name: v1
    schema:
      openAPIV3Schema:
        type: object
    selectableFields:
    - jsonPath: .spec.a
    served: true
    storage: true
    subresources:
      status: {}
  - additionalPrinterColumns:
    - jsonPath: .spec.a
      name: A
      type: string
    name: v1alpha1
    schema:
      openAPIV3Schema:
        type: object
    selectableFields:
    - jsonPath: .spec.a
    served: true
    storage: false
    subresources:
      status: {}
`,
		},
		{
			// fields that differ between the versions
			`"version":"v2","versions":[{"name":"v2","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}},
			"additionalPrinterColumns":[{"name":"B","type":"string","JSONPath":".spec.b"}]}],
			"conversion":{"strategy":"Webhook","webhookClientConfig":{"url":"https://a"},"conversionReviewVersions":["v1"]}`,
			`
  conversion:
    strategy: Webhook
    webhook:
      clientConfig:
        url: https://a
      conversionReviewVersions:
      - v1
  versions:
  - additionalPrinterColumns:
    - jsonPath: .spec.b
      name: B
      type: string
    name: v2
    schema:
      openAPIV3Schema:
        type: object
    served: true
    storage: true
`,
		},
		{ // the form that the first servers stored
			`"version":"v1"`,
			`
  versions:
  - name: v1
    served: true
    storage: true
`,
		},
	} {
		o, err := kubernetes.Decode([]byte(`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1beta1",` +
			`"metadata":{"name":"a.example.org","uid":"1"},"spec":{` + test.stored + `},"status":{"storedVersions":["v1"]}}`))
		if err != nil {
			t.Fatal(err)
		}
		text, err := o.Applicable().YAML()
		if err != nil {
			t.Fatal(err)
		}
		want := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: a.example.org\nspec:" +
			strings.ReplaceAll(test.want, "", "")
		diff := cmp.Diff(want, string(text))
		if diff != "" {
			t.Error(diff)
		}
	}
}

// Internal records of an API server are encoded like objects, but are none.
func TestHasName(t *testing.T) {
	for object, want := range map[runtime.Object]bool{
		&corev1.RangeAllocation{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "RangeAllocation"}, Range: "30000-32767"}: false,
		deployment(): true,
	} {
		o, err := kubernetes.Decode(encode(t, object))
		if err != nil {
			t.Fatal(err)
		}
		if o.HasName() != want {
			t.Errorf("%v: %v, want %v", o, !want, want)
		}
	}
}
