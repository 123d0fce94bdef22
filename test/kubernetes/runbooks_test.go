package kubernetes

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
)

var applied = regexp.MustCompile("(?sm)^ *kubectl apply -f - <<'END'\n(.*?)^ *END$")

// testAllLost deletes a StatefulSet with its volumes and its EtcdBackup, and follows the runbook AllLost. The EtcdBackup is that of
// docs/kubernetes.md, and archives the log: nothing that has been archived is lost.
func (s *site) testAllLost(t *testing.T) {
	const namespace = "ledger"
	s.startEtcd(t, namespace, "3.6")
	journal := s.journal(t, namespace, "entry", 5)
	s.urls.set(namespace, s.store.Bucket(t, namespace))
	s.credentials(t, namespace)
	own := strings.NewReplacer(s.urls.of("payments"), s.urls.of(namespace), "payments", namespace)
	backup := own.Replace(s.readStart(t).manifest)
	s.Kubectl(t, backup, "apply", "-f", "-")
	s.Kubectl(t, "", "-n", namespace, "patch", "edb", "etcd", "--type=merge", "-p", `{"spec": {"archive": {"flush": "1s"}}}`)
	journal["last"] = "of the log"
	putLast := func() int64 { return s.put(t, namespace, "last", journal["last"]) }
	s.waitBased(t, namespace, func() { putLast() })
	maps.Copy(journal, s.journal(t, namespace, "later", 5))
	last := putLast()
	s.waitLogged(t, namespace, last, last)

	s.Kubectl(t, "", "-n", namespace, "delete", "edb,statefulset", "etcd", "--timeout", patience.String())
	s.Kubectl(t, "", "-n", namespace, "delete", "persistentvolumeclaims", "--all", "--timeout", patience.String())
	s.Kubectl(t, "", "-n", namespace, "create", "secret", "generic", "backups-identity", "--from-file=key.txt="+s.identity)
	s.Kubectl(t, "", "apply", "-f", "../../deploy/kubernetes/restores.yaml")
	s.applyEtcd(t, namespace, "3.6", "replicas: 3", "replicas: 0")
	s.Kubectl(t, own.Replace(s.runbook(t, "AllLost")), "apply", "-f", "-")
	s.wantRestored(t, namespace, "all-lost", journal)
	s.Kubectl(t, backup, "apply", "-f", "-")
	s.wantProtected(t, namespace)
}

// runbook returns the manifest of a page, with the values of this site in place of its examples.
func (s *site) runbook(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/runbooks/kubernetes/" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	found := applied.FindStringSubmatch(string(page))
	if found == nil {
		t.Fatalf("%s applies no manifest", name)
	}
	return s.replacer().Replace(found[1])
}

func (s *site) wantProtected(t *testing.T, namespace string) {
	t.Helper()
	s.Kubectl(t, "", "-n", namespace, "wait", "--for=condition=Protected", "--timeout", patience.String(), "edb/etcd")
}
