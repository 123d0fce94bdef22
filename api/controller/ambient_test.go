package controller

import (
	"errors"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/reach"
)

// prefixes are the ambient prefixes of the tests.
var prefixes = []string{
	"s3://shared/backups?region=eu-1", "s3://own/{{namespace}}", "s3://minio/etcd?endpoint=https://minio.stores:9000&sse=aws:kms&kms-key=ours",
	"gs://whole", "azblob://vault/etcd?account=acct",
}

// withoutSecret returns an EtcdBackup of the namespace payments with a URL, and no Secret.
func withoutSecret(url string) *v1alpha1.EtcdBackup {
	b := scheduled("payments", "etcd")
	b.Spec.Repositories[0] = v1alpha1.Repository{Name: "main", URL: url}
	return b
}

// TestAmbientPrefixes lists the URLs that need no Secret, and tricks by which an author could get the operator's identity to another place.
func TestAmbientPrefixes(t *testing.T) {
	for url, want := range map[string]bool{
		"s3://shared/backups":                              true,
		"s3://shared/backups/":                             true,
		"s3://shared/backups/etcd?region=us-2":             true,
		"s3://shared/backups/{{cluster}}?storage-class=IA": true,
		"s3://shared/backups?checksums=when-required":      true,
		"s3://own/payments/etcd":                           true,
		"s3://own/{{cluster}}":                             false, // payments.etcd
		"gs://whole":                                       true,
		"gs://whole/etcd":                                  true,
		"azblob://vault/etcd?account=acct":                 true,
		"s3://minio/etcd?kms-key=ours&sse=aws:kms&endpoint=https://minio.stores:9000": true,

		"s3://shared":                                        false,
		"s3://shared/backup":                                 false,
		"s3://shared/backups2":                               false,
		"s3://shared/backups%2F..%2Fother":                   false,
		"s3://shared/backups/../other":                       false,
		"s3://shared/backups/%2e%2e/other":                   false,
		"s3://shared/backups//etcd":                          false,
		"s3://shared/other/backups":                          false,
		"s3://shared/{{cluster}}":                            false,
		"s3://Shared/backups":                                false,
		"s3://shared.evil/backups":                           false,
		"s3://me@shared/backups":                             false,
		"s3://shared:443/backups":                            false,
		"gs://shared/backups":                                false,
		"azblob://shared/backups":                            false,
		"file:///shared/backups":                             false,
		"s3://own":                                           false,
		"s3://own/bank":                                      false,
		"s3://own/payments2":                                 false,
		"s3://own/{{namespace}}":                             false,
		"s3://shared/backups?endpoint=https://evil.example":  false,
		"s3://shared/backups?path-style=true":                false,
		"s3://shared/backups?sse=aws:kms&kms-key=arn:theirs": false,
		"s3://shared/backups?ca=/etc/passwd":                 false,
		"s3://shared/backups?region=eu-1&endpoint=https://s3.amazonaws.com": false,
		"s3://minio/etcd": false,
		"s3://minio/etcd?endpoint=https://minio.stores":          false,
		"s3://minio/etcd?endpoint=http://minio.stores:9000":      false,
		"s3://minio/etcd?endpoint=https://minio.stores:9000":     false,
		"gs://whole?endpoint=https://evil.example":               false,
		"azblob://vault/etcd":                                    false,
		`azblob://vault/etcd/..\..\other?account=acct`:           false,
		"azblob://vault/etcd/%5C..%5C..%5Cother?account=acct":    false,
		"azblob://vault/etcd?account=theirs":                     false,
		"azblob://vault/etcd?account=acct&endpoint=https://evil": false,
	} {
		d := declaration{ambient: prefixes}
		s, err := d.buildSpec(withoutSecret(url))
		if (err == nil) != want {
			t.Errorf("%s: accepted is %t, want %t: %v", url, err == nil, want, err)
		}
		if err == nil && (!s.Repositories[0].Credentials.None() || s.Repositories[0].Reach != reach.OtherHosts) {
			t.Errorf("%s: credentials %v, reach %q", url, s.Repositories[0].Credentials, s.Repositories[0].Reach)
		}
	}
}

// TestWithoutAPrefixEachRepositoryNeedsASecret checks the message too.
func TestWithoutAPrefixEachRepositoryNeedsASecret(t *testing.T) {
	d := declaration{}
	_, err := d.buildSpec(withoutSecret("s3://shared/backups"))
	if err == nil || !strings.Contains(err.Error(), "spec.repositories[main].credentialsSecret: it is not set, and the operator may not use its own identity") {
		t.Error(err)
	}
}

// TestTheIdentityTrustsNoCAOfANamespace: with a CA, an author could answer in place of the store, and get the operator's tokens.
func TestTheIdentityTrustsNoCAOfANamespace(t *testing.T) {
	b := withoutSecret("s3://shared/backups")
	b.Spec.Repositories[0].CASecret = &v1alpha1.CASecret{Name: "tls"}
	d := declaration{ambient: prefixes, secrets: secrets{"tls": {"ca.crt": certificates(t).CA}}}
	_, err := d.buildSpec(b)
	if err == nil || !strings.Contains(err.Error(), "spec.repositories[main].caSecret: the operator's identity trusts no CA") {
		t.Error(err)
	}
}

// TestTheIdentityLocksNothing: an author could fill the administrator's bucket with objects that nobody can delete.
func TestTheIdentityLocksNothing(t *testing.T) {
	b := withoutSecret("s3://shared/backups")
	b.Spec.Repositories[0].Lock = &v1alpha1.Lock{For: "100y", Mode: "compliance"}
	d := declaration{ambient: prefixes}
	_, err := d.buildSpec(b)
	if err == nil || !strings.Contains(err.Error(), "spec.repositories[main].lock: the operator's identity locks nothing") {
		t.Error(err)
	}
}

// TestASecretIsUsedBelowAPrefixToo checks that a missing Secret is a fault there, and no fallback.
func TestASecretIsUsedBelowAPrefixToo(t *testing.T) {
	b := withoutSecret("s3://shared/backups")
	b.Spec.Repositories[0].CredentialsSecret = &v1alpha1.SecretName{Name: "store"}
	d := declaration{ambient: prefixes, secrets: secrets{"store": storeKeys()}}
	s, err := d.buildSpec(b)
	if err != nil || s.Repositories[0].Credentials.None() {
		t.Errorf("%v: %+v", err, s.Repositories)
	}
	d = declaration{ambient: prefixes, secrets: secrets{"store": nil}}
	_, err = d.buildSpec(b)
	if err == nil || !strings.Contains(err.Error(), "there is no Secret store") {
		t.Errorf("without the Secret: %v", err)
	}
}

func TestPrefixesThatCannotBeUsed(t *testing.T) {
	err := checkPrefixes(prefixes)
	if err != nil {
		t.Error(err)
	}
	for prefix, want := range map[string]string{
		"backups": "unknown scheme", "file:///srv": "a directory needs no identity", "s3://bbb/{{cluster}}": "unknown placeholder",
		"s3://bbb?ca=/etc/ca.pem": "the option ca", "s3://bbb/../c": "element", "": "none given",
	} {
		err := checkPrefixes([]string{"s3://goo", prefix})
		if !errors.Is(err, ErrPrefix) || fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", prefix, err, want)
		}
	}
}

// TestExamplesAreAccepted builds the settings of each EtcdBackup in deploy/kubernetes/examples, with Secrets of their stores.
func TestExamplesAreAccepted(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/examples/etcd-backups.yaml")
	if err != nil {
		t.Fatal(err)
	}
	key := map[string][]byte{"access-token": []byte("token")}
	stores := map[string]map[string][]byte{
		"s3": storeKeys(), "minio": storeKeys(), "gcs": key, "gcs-workload-identity": nil,
		"azure": {"AZURE_STORAGE_KEY": []byte("a2V5")},
	}
	all := strings.Split(string(text), "\n---\n")
	if len(all) != len(stores) {
		t.Errorf("there are %d examples, want %d", len(all), len(stores))
	}
	for _, text := range all {
		var b v1alpha1.EtcdBackup
		err := yaml.UnmarshalStrict([]byte(text), &b)
		if err != nil {
			t.Fatal(err)
		}
		ca := map[string][]byte{"ca.crt": certificates(t).CA}
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "etcd", Namespace: "payments"}, Spec: appsv1.StatefulSetSpec{ServiceName: "etcd"}}
		d := declaration{
			statefulSet: set, ambient: []string{"gs://backups/{{namespace}}"},
			secrets: secrets{"backups": stores[b.Name], "minio-ca": ca, "backups-away": storeKeys()},
		}
		_, err = d.buildSpec(&b)
		if err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
	}
}
