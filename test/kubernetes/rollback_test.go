package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// awkward changes the manifest of etcd: the pods start one after the other, the claims go when the StatefulSet is scaled down, and the
// Service hides pods that are not ready.
var awkward = []string{
	"podManagementPolicy: Parallel", "podManagementPolicy: OrderedReady\n  persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Delete}",
	"httpGet: {path: /health, port: 2379}", "tcpSocket: {port: 2380}",
	"publishNotReadyAddresses: true", "publishNotReadyAddresses: false",
}

// testRestoreAndBack restores a revision of the log in an awkward StatefulSet that serves, and goes back by an order. In the soak, an earlier
// restore goes back by itself, because another program scales the StatefulSet up again and again. No empty cluster ever answers.
func (s *site) testRestoreAndBack(t *testing.T) {
	t.Parallel()
	const namespace = "depot"
	s.Kubectl(t, "", "create", "namespace", namespace)
	s.applyEtcd(t, namespace, "3.5", awkward...)
	s.apply(t, namespace, "schedule: {cron: '@yearly'}\n  archive: {flush: 1s}")
	s.wantProtected(t, namespace)
	journal := s.journal(t, namespace, "kept", 5)
	revision := s.put(t, namespace, "last", "before the mistake")
	journal["last"] = "before the mistake"
	mistake := s.put(t, namespace, "last", "the mistake")
	eventually(t, "the window contains the mistake", func() bool {
		_, to := s.window(t, namespace)
		return to >= mistake
	})
	claims, old, hash := s.claims(t, namespace), s.clusterID(t, namespace), s.hashKV(t, namespace, mistake)

	target := fmt.Sprintf("target: {revision: %d}\n  confirm: etcd", revision)
	end := s.probe(t, namespace)
	if soak.On() {
		s.Kubectl(t, restoreOf(namespace, "contended", target), "apply", "-f", "-")
		stop := s.scaleUpWhile(t, namespace, s.watchRestore(t, namespace, "contended", nil), handoff.Sealing, handoff.Placing)
		s.wantPhase(t, namespace, "contended", handoff.Failed)
		stop()
		s.wantCluster(t, namespace, old, mistake, hash)
		s.wantAwkward(t, namespace, claims)
	}
	s.Kubectl(t, restoreOf(namespace, "before-mistake", target), "apply", "-f", "-")
	s.wantRestored(t, namespace, "before-mistake", journal)
	for _, a := range end() {
		if a.revision <= 1 {
			t.Errorf("member %d has answered at %s with revision %d: its cluster is empty", a.member, a.at, a.revision)
		}
	}
	s.wantAwkward(t, namespace, claims)
	eventually(t, "a backup of the restored cluster is stored", func() bool {
		return s.backups(t, namespace)[0].ClusterID == fmt.Sprintf("%x", s.clusterID(t, namespace))
	})

	s.Kubectl(t, "", "-n", namespace, "patch", "edr", "before-mistake", "--type=merge", "-p", `{"spec": {"rollback": true}}`)
	s.Eventually(t, string(handoff.Failed), "-n", namespace, "get", "edr", "before-mistake", "-o", "jsonpath={.status.phase}") // after Succeeded
	s.wantCluster(t, namespace, old, mistake, hash)
	s.wantAwkward(t, namespace, claims)
	s.leave(t, namespace)
}

// wantAwkward checks that a restore has left the settings and the claims as they were.
func (s *site) wantAwkward(t *testing.T, namespace string, claims map[string]string) {
	t.Helper()
	s.wantSameClaims(t, namespace, claims)
	policy := s.Kubectl(t, "", "-n", namespace, "get", "statefulset", "etcd", "-o", "jsonpath={.spec.persistentVolumeClaimRetentionPolicy.whenScaled}")
	published := s.Kubectl(t, "", "-n", namespace, "get", "service", "etcd", "-o", "jsonpath={.spec.publishNotReadyAddresses}")
	if policy != "Delete" || published == "true" {
		t.Errorf("whenScaled is %q, and publishNotReadyAddresses %q", policy, published)
	}
}

// scaleUpWhile scales the StatefulSet up again and again while a restore is in one of some phases, as a controller that undoes changes does.
// The returned function ends that.
func (s *site) scaleUpWhile(t *testing.T, namespace string, p *progress, phases ...handoff.Phase) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var scaler sync.WaitGroup
	scaled := 0
	scaler.Go(func() {
		for ctx.Err() == nil {
			if slices.Contains(phases, p.phase()) {
				_, err := s.Try("", "-n", namespace, "scale", "statefulset/etcd", "--replicas=3")
				if err == nil {
					scaled++
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	t.Cleanup(cancel)
	return func() {
		cancel()
		scaler.Wait()
		t.Logf("scaled up %d times during %s", scaled, strings.ReplaceAll(fmt.Sprint(phases), " ", ", "))
		if scaled == 0 {
			t.Error("the StatefulSet was not scaled up meanwhile")
		}
	}
}
