package kubernetes

import (
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/operators"
)

// testCnych restores the StatefulSet of an EtcdCluster while a stand-in for cnych's operator runs. Afterwards the operator replaces no pod.
func (s *site) testCnych(t *testing.T) {
	t.Parallel()
	const namespace = "lab"
	s.Kubectl(t, "", "create", "namespace", namespace)
	s.startCnych(t, namespace)
	journal := s.journal(t, namespace, "order", 5)
	s.apply(t, namespace, `schedule: {cron: "@yearly"}`)
	s.wantProtected(t, namespace)
	claims := s.claims(t, namespace)
	s.put(t, namespace, "late", "it is lost")

	s.Kubectl(t, restoreOf(namespace, "all", "target: {latest: {}}\n  confirm: etcd"), "apply", "-f", "-")
	s.wantRestored(t, namespace, "all", journal)
	s.wantSameClaims(t, namespace, claims)
	s.Eventually(t, "3 3", "-n", namespace, "get", "statefulset", "etcd", "-o", "jsonpath={.spec.replicas} {.status.readyReplicas}")
	sizes := s.Kubectl(t, "", "-n", namespace, "get", "pods", "-l", "app=etcd", "-o", `jsonpath={.items[*].spec.containers[0].env[?(@.name=="INITIAL_CLUSTER_SIZE")].value}`)
	if sizes != "3 3 3" {
		t.Errorf("the pods have the first sizes %s", sizes)
	}
	pods := s.uids(t, namespace, "pods", "-l", "app=etcd")
	for range 3 {
		s.reconcileCnych(t, namespace)
	}
	s.Kubectl(t, "", "-n", namespace, "rollout", "status", "statefulset/etcd", "--timeout", patience.String())
	after := s.uids(t, namespace, "pods", "-l", "app=etcd")
	if !maps.Equal(pods, after) {
		t.Errorf("the operator has replaced pods: %v, before %v", after, pods)
	}
	s.wantServed(t, namespace, journal)
	s.leave(t, namespace)
}

// startCnych creates an EtcdCluster of three members, and runs the stand-in for its operator until the test ends.
func (s *site) startCnych(t *testing.T, namespace string) {
	t.Helper()
	s.Kubectl(t, cnych.Definition, "apply", "-f", "-")
	s.Kubectl(t, "", "wait", "--for=condition=Established", "--timeout", patience.String(), "customresourcedefinition/etcdclusters.etcd.ydzs.io")
	s.Kubectl(t, cnych.EtcdCluster("etcd", "etcd-dr.test/etcd:3.6", 3), "-n", namespace, "create", "-f", "-")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Second): // it has no watch
				s.reconcileCnych(t, namespace)
			}
		}
	})
	t.Cleanup(func() { close(stop); wg.Wait() })
	s.Eventually(t, "3", "-n", namespace, "get", "statefulset", "etcd", "--ignore-not-found", "-o", "jsonpath={.status.readyReplicas}")
}

// reconcileCnych lets the operator act. It tries again later after an error, as the operator does.
func (s *site) reconcileCnych(t *testing.T, namespace string) {
	err := cnych.Reconcile(t.Context(), s.client, namespace, "etcd")
	if err != nil && t.Context().Err() == nil {
		t.Logf("cnych's operator: %v", err)
	}
}
