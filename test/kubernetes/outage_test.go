package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// testAPIServerIsDown stops the API server until two more backups, of which one is due each minute, and the log are stored. The store's own
// times show that backups and segments continue. Afterwards the status names the newest backup, the window begins before the outage, and no
// operator was started again. Kubernetes itself evicts pods from nodes that it has not heard of, so the controller manager is stopped until it
// can hear of them.
func (s *site) testAPIServerIsDown(t *testing.T) {
	const namespace = "orders"
	s.startEtcd(t, namespace, "3.7")
	s.apply(t, namespace, `
  schedule: {cron: "* * * * *"}
  archive: {flush: 1s}
`)
	s.Kubectl(t, "", "-n", namespace, "wait", "--for=condition=Protected", "--timeout="+patience.String(), "etcdbackup/etcd")
	before := s.put(t, namespace, "order", "before")
	s.waitStored(t, namespace, segments, time.Time{})
	operators := s.operatorPods(t)

	s.StopComponent(t, "kube-controller-manager")
	s.StopComponent(t, "kube-apiserver")
	for n := range 2 {
		begin := time.Now()
		s.put(t, namespace, "order", fmt.Sprint("during the outage ", n))
		s.waitStored(t, namespace, segments, begin)
		s.waitStored(t, namespace, manifests, begin)
	}
	s.StartComponent(t, "kube-apiserver")
	s.waitNodes(t, time.Now())
	s.StartComponent(t, "kube-controller-manager")

	s.Eventually(t, "ok", "get", "--raw", "/readyz")
	eventually(t, "the status names the newest backup", func() bool {
		named, err := s.Try("", "-n", namespace, "get", "edb", "etcd", "-o", "jsonpath={.status.last.id}") // EtcdBackups are served later than /readyz
		return err == nil && named == string(s.backups(t, namespace)[0].ID)
	})
	from, _ := s.window(t, namespace)
	if from == 0 || from > before {
		t.Errorf("the window begins at revision %d, want %d or before", from, before)
	}
	after := s.operatorPods(t)
	for pod, restarts := range operators {
		if after[pod] != restarts {
			t.Errorf("%s was started again or removed, want the pods and restarts %v, have %v", pod, operators, after)
		}
	}
	s.wantPoint(t, namespace, "3.7")
}

// waitNodes waits until all nodes have renewed their leases after a time.
func (s *site) waitNodes(t *testing.T, begin time.Time) {
	t.Helper()
	eventually(t, "all nodes have renewed their leases", func() bool {
		out, err := s.Try("", "-n", "kube-node-lease", "get", "leases", "-o", "jsonpath={.items[*].spec.renewTime}")
		return err == nil && out != "" && !slices.ContainsFunc(strings.Fields(out), func(renewed string) bool {
			at, err := time.Parse(time.RFC3339, renewed)
			return err != nil || !at.After(begin)
		})
	})
}

// testAPIServerIsKilled restores payments, and kills the API server in each phase that works on the members.
func (s *site) testAPIServerIsKilled(t *testing.T) {
	const namespace = "payments"
	restored := s.keysAt(t, namespace, 0)
	s.wantOneBackup(t, namespace, "before-outage")
	s.put(t, namespace, "late", "after the backup")
	s.Kubectl(t, "", "-n", namespace, "create", "secret", "generic", "restore-identity", "--from-file=key.txt="+s.identity)
	target := fmt.Sprintf("target: {backup: %s}\n  identitySecret: {name: restore-identity}\n  confirm: etcd", s.backups(t, namespace)[0].ID)
	s.Kubectl(t, restoreOf(namespace, "outage", target), "apply", "-f", "-")

	var killed []handoff.Phase
	phases := []handoff.Phase{handoff.Staging, handoff.Fencing, handoff.Sealing, handoff.Placing, handoff.Verifying}
	for phase := handoff.Phase(""); !phase.HasEnded(); phase = s.phase(namespace, "outage") {
		if !slices.Contains(phases, phase) || slices.Contains(killed, phase) {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		s.StopComponent(t, "kube-apiserver")
		s.StartComponent(t, "kube-apiserver")
		killed = append(killed, phase)
	}
	t.Logf("the API server was killed during %q", killed)
	if len(killed) < 2 {
		t.Errorf("the API server was killed only during %q", killed)
	}
	s.wantRestored(t, namespace, "outage", restored)
}

// operatorPods returns the number of restarts of each operator, by the name of its pod. Pods that are being deleted are left out.
func (s *site) operatorPods(t *testing.T) map[string]string {
	t.Helper()
	out := s.Kubectl(t, "", "-n", "etcd-dr", "get", "pods", "-o",
		`jsonpath={range .items[*]}{.metadata.name}={.status.containerStatuses[*].restartCount}={.metadata.deletionTimestamp}{"\n"}{end}`)
	pods := map[string]string{}
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), "=")
		if len(fields) == 3 && fields[2] == "" {
			pods[fields[0]] = fields[1]
		}
	}
	if len(pods) == 0 {
		t.Fatalf("no operator runs: %q", out)
	}
	return pods
}

// Objects of a cluster in the store.
const (
	segments  = "log/*/*.seg"
	manifests = "backups/*/manifest.json"
)

// waitStored waits until a bucket contains an object whose key matches a pattern, and which is newer than a time by the store's clock.
func (s *site) waitStored(t *testing.T, bucket, pattern string, after time.Time) {
	t.Helper()
	eventually(t, "an object "+pattern+" is stored", func() bool {
		files, err := filepath.Glob(filepath.Join(s.store.Folder(bucket), "*", "*", pattern))
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(files, func(file string) bool {
			info, err := os.Stat(file)
			return err == nil && info.ModTime().After(after)
		})
	})
}
