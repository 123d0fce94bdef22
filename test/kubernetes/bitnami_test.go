package kubernetes

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// testBitnami restores an etcd that runs as the chart of bitnami runs it, with a stand-in for its script. The script first removes the data
// of a member that was restored alone, and would replace the data of all members by a snapshot of its own if the restore let it.
func (s *site) testBitnami(t *testing.T) {
	t.Parallel()
	const namespace = "bitnami"
	s.Kubectl(t, "", "create", "namespace", namespace)
	s.applyManifest(t, "testdata/bitnami.yaml", namespace, "3.6")
	s.put(t, namespace, "order-000", "of the script's snapshot")
	snapshot := s.saveSnapshot(t, namespace)
	journal := s.journal(t, namespace, "order", 5)
	s.restoreAlone(t, namespace, snapshot)

	s.apply(t, namespace, `schedule: {cron: "@yearly"}`)
	s.Kubectl(t, "", "-n", namespace, "wait", "--for=condition=Protected", "--timeout", patience.String(), "edb/etcd")
	claims := s.claims(t, namespace)
	s.put(t, namespace, "late", "it is lost")
	s.Kubectl(t, restoreOf(namespace, "all", "target: {latest: {}}\n  confirm: etcd"), "apply", "-f", "-")
	s.wantRestored(t, namespace, "all", journal)
	s.wantSameClaims(t, namespace, claims)
	for _, pod := range []string{"etcd-0", "etcd-1", "etcd-2"} {
		decisions := s.decisions(t, namespace, pod)
		if decisions == "" || strings.Contains(decisions, "removed") || strings.Contains(decisions, "replaces") {
			t.Errorf("the script of %s has decided: %s", pod, decisions)
		}
	}
	recovery := s.Kubectl(t, "", "-n", namespace, "get", "statefulset", "etcd", "-o",
		`jsonpath={.spec.template.spec.containers[0].env[?(@.name=="ETCD_DISASTER_RECOVERY")].value}`)
	if recovery != "no" {
		t.Errorf("ETCD_DISASTER_RECOVERY is %q", recovery)
	}
	s.leave(t, namespace)
}

// saveSnapshot stores a snapshot where the script looks for one, and returns its file.
func (s *site) saveSnapshot(t *testing.T, namespace string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "db-2026-01-01_00-00")
	s.etcdctl(t, namespace, nil, "snapshot", "save", file)
	must(t, exec.Command("cp", file, s.Volume(t, namespace, "etcd-snapshotter")))
	return file
}

// restoreAlone restores a snapshot on the disk of one member, as etcdutl does it by hand, while the others serve. The script removes the
// data of that member when it starts, which then joins the others anew.
func (s *site) restoreAlone(t *testing.T, namespace, snapshot string) {
	t.Helper()
	s.scale(t, namespace, 2)
	volume, data := s.Volume(t, namespace, "data-etcd-2"), filepath.Join(t.TempDir(), "data")
	must(t, s.Command(nil, "etcdutl", "snapshot", "restore", snapshot, "--data-dir", data, "--name", "etcd-2", "--initial-cluster-token", "alone",
		"--initial-cluster", strings.ReplaceAll("etcd-0=http://etcd-0.ADDRESS,etcd-1=http://etcd-1.ADDRESS,etcd-2=http://etcd-2.ADDRESS", "ADDRESS",
			"etcd."+namespace+".svc.cluster.local:2380"),
		"--initial-advertise-peer-urls", "http://etcd-2.etcd."+namespace+".svc.cluster.local:2380"))
	lose(t, filepath.Join(volume, "data"))
	must(t, exec.Command("cp", "-r", data, volume))
	s.scale(t, namespace, 3)
	decisions := s.decisions(t, namespace, "etcd-2")
	if !strings.Contains(decisions, "the data is removed") {
		t.Errorf("the script has decided: %s", decisions)
	}
	s.wantOneHash(t, namespace)
}

// scale scales the StatefulSet, and waits until as many members are ready, and no more exist.
func (s *site) scale(t *testing.T, namespace string, replicas int) {
	t.Helper()
	count := strconv.Itoa(replicas)
	s.Kubectl(t, "", "-n", namespace, "scale", "statefulset/etcd", "--replicas="+count)
	s.Kubectl(t, "", "-n", namespace, "rollout", "status", "statefulset/etcd", "--timeout", patience.String())
	s.Eventually(t, count+" "+count, "-n", namespace, "get", "statefulset", "etcd", "-o", "jsonpath={.status.replicas} {.status.readyReplicas}")
}

// decisions returns the lines that the script of a pod has logged.
func (s *site) decisions(t *testing.T, namespace, pod string) string {
	t.Helper()
	var all strings.Builder
	for line := range strings.Lines(s.Kubectl(t, "", "-n", namespace, "logs", pod)) {
		if strings.HasPrefix(line, "bitnami stand-in: ") {
			all.WriteString(line)
		}
	}
	return all.String()
}

func must(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
}
