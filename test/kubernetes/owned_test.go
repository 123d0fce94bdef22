package kubernetes

import (
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/operators"
)

// testCnych restores the StatefulSet of an EtcdCluster of cnych's operator, by what dr convert prints for the manifests of that operator. Then
// it removes the EtcdCluster by the command of docs/migrate.md, and restores without that operator.
func (s *site) testCnych(t *testing.T) {
	t.Parallel()
	const namespace = "lab"
	s.store.Bucket(t, namespace)
	reconcile := s.startOwned(t, namespace, operators.Cnych)
	s.credentials(t, namespace)
	journal := s.testRestored(t, namespace, s.converted(t, "testdata/cnych.yaml", namespace), reconcile)

	remove := strings.Join(blocksOf(filled(t, "../../docs/migrate.md"), "cnych's operator"), "")
	s.bash(t, t.TempDir(), strings.ReplaceAll(remove, " demo ", " etcd "))
	s.put(t, namespace, "late", "lost again")
	s.Kubectl(t, restoreOf(namespace, "again", "target: {latest: {}}\n  confirm: etcd"), "apply", "-f", "-")
	s.wantRestored(t, namespace, "again", journal)
	s.leave(t, namespace)
}

// testEtcdIO restores the StatefulSet of an EtcdCluster of etcd-io's operator.
func (s *site) testEtcdIO(t *testing.T) {
	t.Parallel()
	const namespace = "forge"
	backup := object(namespace, s.store.Bucket(t, namespace), `schedule: {cron: "@yearly"}`)
	reconcile := s.startOwned(t, namespace, operators.EtcdIO)
	s.credentials(t, namespace)
	s.testRestored(t, namespace, backup+"---"+restoreOf(namespace, "etcd", "target: {latest: {}}\n  confirm: etcd"), reconcile)
	controls := s.Kubectl(t, "", "-n", namespace, "get", "statefulset", "etcd", "-o", "jsonpath={.metadata.ownerReferences[*].controller}")
	if controls != "true" {
		t.Errorf("after the restore, the EtcdCluster controls the StatefulSet: %q", controls)
	}
	s.leave(t, namespace)
}

// testConverted runs what dr convert prints for the manifests of coreos' operator: a new cluster, its backup, and its restore.
func (s *site) testConverted(t *testing.T) {
	t.Parallel()
	const namespace = "attic"
	s.store.Bucket(t, namespace)
	s.Kubectl(t, "", "create", "namespace", namespace)
	s.Kubectl(t, "", "-n", namespace, "create", "secret", "generic", "aws", "--from-literal=config=[default]\nregion = us-east-1\n",
		"--from-literal=credentials=[default]\naws_access_key_id = "+s.store.AccessKey+"\naws_secret_access_key = "+s.store.SecretKey+"\n")
	ours := s.converted(t, "testdata/coreos.yaml", namespace)
	cluster, orders, _ := strings.Cut(ours, "---\n# EtcdBackup ")
	s.Kubectl(t, cluster, "apply", "-f", "-")
	s.Kubectl(t, "", "-n", namespace, "scale", "statefulset/etcd", "--replicas=3")
	s.Kubectl(t, "", "-n", namespace, "rollout", "status", "statefulset/etcd", "--timeout", patience.String())
	s.testRestored(t, namespace, "# EtcdBackup "+orders, func() {})
	s.leave(t, namespace)
}

// converted returns what dr convert prints for manifests of another operator, with an EtcdRestore that does not wait.
func (s *site) converted(t *testing.T, file, namespace string) string {
	t.Helper()
	theirs := filepath.Join(t.TempDir(), "theirs.yaml")
	writeFile(t, theirs, filled(t, file, "NAMESPACE", namespace, "ENDPOINT", s.store.Endpoint))
	before, after, found := strings.Cut(command.Must(t, nil, "convert", "-f", theirs), "  suspend: true\n")
	if !found {
		t.Fatal("the EtcdRestore is not suspended")
	}
	return before + "  timeLimit: 1h\n" + after
}

// testRestored backs up the StatefulSet etcd, destroys all its data, and restores it, while the operator that owns it runs. Afterwards that
// operator, called as reconcile, replaces no pod. The manifests are those of EtcdBackup etcd and, at the end, of EtcdRestore etcd. It returns
// all keys.
func (s *site) testRestored(t *testing.T, namespace, manifests string, reconcile func()) (journal map[string]string) {
	t.Helper()
	journal = s.journal(t, namespace, "order", 5)
	last := strings.LastIndex(manifests, "\n---\n")
	s.Kubectl(t, manifests[:last], "apply", "-f", "-")
	s.Kubectl(t, "", "-n", namespace, "wait", "--for=jsonpath={.status.last.id}", "--timeout", patience.String(), "edb/etcd")
	claims := s.claims(t, namespace)
	s.destroy(t, namespace)
	before := s.environments(t, namespace)

	s.Kubectl(t, manifests[last:], "apply", "-f", "-")
	s.wantRestored(t, namespace, "etcd", journal)
	s.wantSameClaims(t, namespace, claims)
	s.Eventually(t, "3 3", "-n", namespace, "get", "statefulset", "etcd", "-o", "jsonpath={.spec.replicas} {.status.readyReplicas}")
	after := s.environments(t, namespace)
	if after != before {
		t.Errorf("the pods have other variables: %s, before %s", after, before)
	}
	pods := s.uids(t, namespace, "pods", "-l", "app=etcd")
	for range 3 {
		reconcile()
	}
	s.Kubectl(t, "", "-n", namespace, "rollout", "status", "statefulset/etcd", "--timeout", patience.String())
	later := s.uids(t, namespace, "pods", "-l", "app=etcd")
	if !maps.Equal(pods, later) {
		t.Errorf("the operator has replaced pods: %v, before %v", later, pods)
	}
	s.wantServed(t, namespace, journal)
	return journal
}

// destroy removes the data of all members. They begin a new, empty cluster.
func (s *site) destroy(t *testing.T, namespace string) {
	t.Helper()
	for claim := range s.claims(t, namespace) {
		must(t, exec.Command("find", s.Volume(t, namespace, claim), "-mindepth", "1", "-delete"))
	}
	s.Kubectl(t, "", "-n", namespace, "delete", "pods", "-l", "app=etcd", "--timeout", patience.String())
	s.Kubectl(t, "", "-n", namespace, "rollout", "status", "statefulset/etcd", "--timeout", patience.String())
	s.wantKeys(t, namespace, map[string]string{})
}

// environments returns the variables of all pods.
func (s *site) environments(t *testing.T, namespace string) string {
	t.Helper()
	return s.Kubectl(t, "", "-n", namespace, "get", "pods", "-l", "app=etcd", "-o", "jsonpath={.items[*].spec.containers[0].env}")
}

// startOwned creates an EtcdCluster of three members in a new namespace, and waits until they are ready. It returns the work of its operator.
func (s *site) startOwned(t *testing.T, namespace string, operator operators.Operator) (reconcile func()) {
	t.Helper()
	s.Kubectl(t, "", "create", "namespace", namespace)
	reconcile = s.operate(t, namespace, "etcd", operator)
	s.Eventually(t, "3", "-n", namespace, "get", "statefulset", "etcd", "--ignore-not-found", "-o", "jsonpath={.status.readyReplicas}")
	return reconcile
}

// operate creates an EtcdCluster of three members, and runs its operator until the test ends. It returns the work of the operator.
func (s *site) operate(t *testing.T, namespace, name string, operator operators.Operator) (reconcile func()) {
	t.Helper()
	s.Kubectl(t, operator.Definition(), "apply", "-f", "-")
	s.Kubectl(t, operator.Definition(), "wait", "--for=condition=Established", "--timeout", patience.String(), "-f", "-")
	s.Kubectl(t, operator.EtcdCluster(name, 3), "-n", namespace, "create", "-f", "-")
	reconcile = func() { // the operator tries again later after an error, too
		err := operator.Reconcile(t.Context(), s.client, namespace, name)
		if err != nil && t.Context().Err() == nil {
			t.Logf("the operator: %v", err)
		}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Second): // it has no watch
				reconcile()
			}
		}
	})
	t.Cleanup(func() { close(stop); wg.Wait() })
	return reconcile
}
