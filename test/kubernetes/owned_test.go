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

// testCnych restores the StatefulSet of an EtcdCluster of cnych's operator, by what dr convert prints for the manifests of that operator.
func (s *site) testCnych(t *testing.T) {
	t.Parallel()
	const namespace = "lab"
	s.store.Bucket(t, namespace)
	theirs := filepath.Join(t.TempDir(), "theirs.yaml")
	writeFile(t, theirs, filled(t, "testdata/cnych.yaml", "NAMESPACE", namespace, "ENDPOINT", s.store.Endpoint))
	ours := command.Must(t, nil, "convert", "-f", theirs)
	s.testOwned(t, namespace, operators.Cnych, strings.Replace(ours, "  suspend: true\n", "  timeLimit: 1h\n", 1))
}

// testEtcdIO restores the StatefulSet of an EtcdCluster of etcd-io's operator.
func (s *site) testEtcdIO(t *testing.T) {
	t.Parallel()
	const namespace = "forge"
	backup := object(namespace, s.store.Bucket(t, namespace), `schedule: {cron: "@yearly"}`)
	s.testOwned(t, namespace, operators.EtcdIO, backup+"---"+restoreOf(namespace, "all", "target: {latest: {}}\n  confirm: etcd"))
	controls := s.Kubectl(t, "", "-n", namespace, "get", "statefulset", "etcd", "-o", "jsonpath={.metadata.ownerReferences[*].controller}")
	if controls != "true" {
		t.Errorf("after the restore, the EtcdCluster controls the StatefulSet: %q", controls)
	}
}

// testOwned restores the StatefulSet of an EtcdCluster that has lost all data, while a stand-in for its operator runs. Afterwards the operator
// replaces no pod. The manifests are those of EtcdBackup etcd and, at the end, of EtcdRestore all.
func (s *site) testOwned(t *testing.T, namespace string, operator operators.Operator, manifests string) {
	t.Helper()
	s.Kubectl(t, "", "create", "namespace", namespace)
	reconcile := func() { // the operator tries again later after an error, too
		err := operator.Reconcile(t.Context(), s.client, namespace, "etcd")
		if err != nil && t.Context().Err() == nil {
			t.Logf("the operator: %v", err)
		}
	}
	s.startOwned(t, namespace, operator, reconcile)
	journal := s.journal(t, namespace, "order", 5)
	s.credentials(t, namespace)
	last := strings.LastIndex(manifests, "\n---\n")
	s.Kubectl(t, manifests[:last], "apply", "-f", "-")
	s.Kubectl(t, "", "-n", namespace, "wait", "--for=jsonpath={.status.last.id}", "--timeout", patience.String(), "edb/etcd")
	claims := s.claims(t, namespace)
	s.destroy(t, namespace)
	before := s.environments(t, namespace)

	s.Kubectl(t, manifests[last:], "apply", "-f", "-")
	s.wantRestored(t, namespace, "all", journal)
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
	s.leave(t, namespace)
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

// startOwned creates an EtcdCluster of three members, and runs its operator until the test ends.
func (s *site) startOwned(t *testing.T, namespace string, operator operators.Operator, reconcile func()) {
	t.Helper()
	s.Kubectl(t, operator.Definition(), "apply", "-f", "-")
	s.Kubectl(t, operator.Definition(), "wait", "--for=condition=Established", "--timeout", patience.String(), "-f", "-")
	s.Kubectl(t, operator.EtcdCluster("etcd", 3), "-n", namespace, "create", "-f", "-")
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
	s.Eventually(t, "3", "-n", namespace, "get", "statefulset", "etcd", "--ignore-not-found", "-o", "jsonpath={.status.readyReplicas}")
}
