package controller

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
)

// setOf returns a StatefulSet with a headless Service.
func setOf(replicas int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "etcd"},
		Spec:       appsv1.StatefulSetSpec{Replicas: &replicas, ServiceName: "etcd-headless"},
	}
}

// container returns a container with a port.
func container(name string, port int32) corev1.Container {
	return corev1.Container{Ports: []corev1.ContainerPort{{Name: name, ContainerPort: port}}}
}

func TestEndpointsOfAStatefulSet(t *testing.T) {
	for name, test := range map[string]struct {
		change    func(*appsv1.StatefulSetSpec)
		endpoints []string
		fault     string
	}{
		"two members": {
			func(*appsv1.StatefulSetSpec) {},
			[]string{"https://etcd-0.etcd-headless.payments.svc:2379", "https://etcd-1.etcd-headless.payments.svc:2379"}, "",
		},
		"no number of replicas": {
			func(s *appsv1.StatefulSetSpec) { s.Replicas = nil },
			[]string{"https://etcd-0.etcd-headless.payments.svc:2379"}, "",
		},
		"another first ordinal": {
			func(s *appsv1.StatefulSetSpec) { s.Ordinals = &appsv1.StatefulSetOrdinals{Start: 7} },
			[]string{"https://etcd-7.etcd-headless.payments.svc:2379", "https://etcd-8.etcd-headless.payments.svc:2379"}, "",
		},
		"a port named client": {
			func(s *appsv1.StatefulSetSpec) {
				s.Template.Spec.Containers = []corev1.Container{container("metrics", 9979), container("peer", 2380), container("client", 12379)}
			},
			[]string{"https://etcd-0.etcd-headless.payments.svc:12379", "https://etcd-1.etcd-headless.payments.svc:12379"}, "",
		},
		"ports of other names": {
			func(s *appsv1.StatefulSetSpec) {
				s.Template.Spec.Containers = []corev1.Container{container("peer", 2380)}
			},
			[]string{"https://etcd-0.etcd-headless.payments.svc:2379", "https://etcd-1.etcd-headless.payments.svc:2379"}, "",
		},
		"no replicas":           {func(s *appsv1.StatefulSetSpec) { *s.Replicas = 0 }, nil, "it has no replicas: scale it up"},
		"too many replicas":     {func(s *appsv1.StatefulSetSpec) { *s.Replicas = 33 }, nil, "it has 33 replicas"},
		"no Service":            {func(s *appsv1.StatefulSetSpec) { s.ServiceName = "" }, nil, "it has no serviceName"},
		"another host in a URL": {func(s *appsv1.StatefulSetSpec) { s.ServiceName = "x@169.254.169.254:80/?" }, nil, `its serviceName "x@169.254.169.254:80/?" is not the name of a Service`},
		"another namespace":     {func(s *appsv1.StatefulSetSpec) { s.ServiceName = "etcd.bank.svc" }, nil, `its serviceName "etcd.bank.svc" is not the name of a Service`},
	} {
		set := setOf(2)
		test.change(&set.Spec)
		got, err := endpointsOf(set, "https")
		text := ""
		if err != nil {
			text = err.Error()
		}
		if !slices.Equal(got, test.endpoints) || !strings.HasPrefix(text, test.fault) || err != nil && test.fault == "" {
			t.Errorf("%s: %v, %v, want %v, %q", name, got, err, test.endpoints, test.fault)
		}
	}
}

// TestSourceStatefulSet builds Specs with a StatefulSet in place of endpoints.
func TestSourceStatefulSet(t *testing.T) {
	ca := map[string][]byte{"ca.crt": certificates(t).CA}
	for name, test := range map[string]struct {
		source   v1alpha1.Source
		set      *appsv1.StatefulSet
		endpoint string
		fault    string
	}{
		"without TLS": {v1alpha1.Source{}, setOf(1), "http://etcd-0.etcd-headless.payments.svc:2379", ""},
		"with TLS":    {v1alpha1.Source{TLSSecret: &v1alpha1.SecretName{Name: "tls"}}, setOf(1), "https://etcd-0.etcd-headless.payments.svc:2379", ""},
		"a missing one": {
			v1alpha1.Source{}, nil, "", "spec.source.statefulSet: there is no StatefulSet etcd in this namespace: correct the name, or name the members in endpoints",
		},
		"one without replicas": {v1alpha1.Source{}, setOf(0), "", "spec.source.statefulSet: StatefulSet etcd: it has no replicas"},
	} {
		b := scheduled("payments", "backup")
		test.source.StatefulSet = &v1alpha1.StatefulSetName{Name: "etcd"}
		b.Spec.Source = &test.source
		d := declaration{secrets: secrets{"store": storeKeys(), "tls": ca}, statefulSet: test.set}
		s, err := d.buildSpec(b)
		switch {
		case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)):
			t.Errorf("%s: %v, want %q", name, err, test.fault)
		case test.fault == "" && (err != nil || !slices.Equal(s.Etcd.Endpoints, []string{test.endpoint})):
			t.Errorf("%s: %v, endpoints %v, want %s", name, err, s.Etcd.Endpoints, test.endpoint)
		}
	}
}
