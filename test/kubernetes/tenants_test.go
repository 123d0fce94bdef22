package kubernetes

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/golden"
)

// testTenants lets the author of another namespace try to read the backups and the Secret of payments.
func (s *site) testTenants(t *testing.T) {
	t.Parallel()
	s.startEtcd(t, "mallory", "3.5")
	s.Kubectl(t, object("mallory", s.urls.of("payments"), "schedule: {cron: '@yearly'}"), "apply", "-f", "-")
	s.Eventually(t, "False", "-n", "mallory", "get", "edb", "etcd", "-o", `jsonpath={.status.conditions[?(@.type=="Accepted")].status}`)
	message := s.Kubectl(t, "", "-n", "mallory", "get", "edb", "etcd", "-o", `jsonpath={.status.conditions[?(@.type=="Accepted")].message}`)
	if !strings.Contains(message, "there is no Secret backups-s3 in this namespace") {
		t.Errorf("the Secret of another namespace: %s", message)
	}

	s.Kubectl(t, "", "-n", "mallory", "create", "secret", "generic", "backups-s3",
		"--from-literal=AWS_ACCESS_KEY_ID=mallory", "--from-literal=AWS_SECRET_ACCESS_KEY=guessed")
	eventually(t, "the store refuses the guessed key", func() bool {
		problem := s.Kubectl(t, "", "-n", "mallory", "get", "edb", "etcd", "-o", "jsonpath={.status.repositories[0].problem}")
		return problem != ""
	})
	_, err := os.Stat(filepath.Join(s.store.Folder("payments"), "etcd", "mallory.etcd"))
	if !os.IsNotExist(err) {
		t.Errorf("in the bucket of payments there is a folder of mallory: %v", err)
	}
	s.Kubectl(t, "", "delete", "namespace", "mallory", "--timeout", patience.String()) // an EtcdBackup holds nothing up
}

// testRights compares the operator's rights with a list, and with its requests in all tests: it has no right that it does not use, and
// has read no Secret but those that EtcdBackups name.
func (s *site) testRights(t *testing.T) {
	rights := s.rights(t)
	golden.Want(t, "testdata/rights.txt", []byte(strings.Join(rights, "\n")+"\n"))

	used := map[string]bool{
		"list etcdbackups.etcd-dr.io":  true, // by API servers that cannot stream lists (Kubernetes 1.31)
		"patch events.events.k8s.io":   true, // if an event occurs again
		"list etcdrestores.etcd-dr.io": true, // like EtcdBackups
		"list events":                  true, // if a Job gets no pod at once
		"get namespaces":               true, // if an EtcdRestore is deleted before it has ended, as in TestSoakOnKubernetes
		"patch persistentvolumeclaims": true, // unless the StatefulSet controller removes its references first
	}
	var secrets []string
	for _, r := range s.requests(t) {
		name := r.ObjectRef.Resource
		if r.ObjectRef.APIGroup != "" {
			name += "." + r.ObjectRef.APIGroup
		}
		if r.ObjectRef.Subresource != "" {
			name += "/" + r.ObjectRef.Subresource
		}
		used[r.Verb+" "+name] = true
		if name == "secrets" {
			secrets = append(secrets, r.ObjectRef.Namespace+"/"+r.ObjectRef.Name)
		}
	}
	for _, right := range rights {
		if !used[right] {
			t.Errorf("the operator has the right %s and does not use it", right)
		}
	}
	slices.Sort(secrets)
	secrets = slices.Compact(secrets)
	want := []string{
		"attic/aws", "bank/backups-s3", "bitnami/backups-s3", "books/backups-s3", "depot/backups-s3", "forge/backups-s3", "granary/backups-s3", "lab/backups-s3",
		"mallory/backups-s3", "market/backups-s3", "mill/backups-s3", "orders/backups-s3", "payments/backups-s3", "relay/backups-s3",
		"relay/etcd-client", "safe/backups-s3", "safe/etcd-client", "safe/etcd-user",
	}
	if !slices.Equal(secrets, want) {
		t.Errorf("the operator has read the Secrets %q, want %q", secrets, want)
	}
}

// rights returns the operator's rights in a namespace of a tenant: each a verb and a resource. Those that every account has are left out.
func (s *site) rights(t *testing.T) (rights []string) {
	t.Helper()
	list := s.Kubectl(t, "", "auth", "can-i", "--list", "--no-headers", "-n", "payments", "--as", account)
	row := regexp.MustCompile(`^(\S+) +\[\] +\[\] +\[(.*)\]$`) // resource, no URLs, no names, verbs
	for line := range strings.Lines(list) {
		m := row.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || strings.HasPrefix(m[1], "selfsubject") {
			continue
		}
		for _, verb := range strings.Fields(m[2]) {
			rights = append(rights, verb+" "+m[1])
		}
	}
	slices.Sort(rights)
	return rights
}

// requests returns the operator's requests for objects.
func (s *site) requests(t *testing.T) (requests []request) {
	t.Helper()
	for line := range bytes.Lines(s.AuditLog(t)) {
		var r request
		err := json.Unmarshal(line, &r)
		if err == nil && r.User.Username == account && r.ObjectRef.Resource != "" { // a line may be torn by the kill
			requests = append(requests, r)
		}
	}
	return requests
}

const account = "system:serviceaccount:etcd-dr:etcd-dr"

// request is the part of an audit.k8s.io/v1 Event that the tests compare.
type request struct {
	Verb      string
	User      struct{ Username string }
	ObjectRef struct{ APIGroup, Resource, Subresource, Namespace, Name string }
}
