package kubernetes

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/tools"
)

// testHelm installs the chart, upgrades it with another value, and uninstalls it. The EtcdBackup and its definition stay all the time, the
// operators take backups before and after the upgrade, and no finalizer holds a namespace up.
func (s *site) testHelm(t *testing.T) {
	const namespace = "shop"
	image, tag, _ := strings.Cut(s.image, ":")
	s.startEtcd(t, namespace, "3.6")
	s.helm(t, "install", "--create-namespace", "--set=image.repository="+image, "--set=image.tag="+tag)
	s.apply(t, namespace, "schedule: {cron: '@yearly'}")
	s.wantOneBackup(t, namespace, "before")
	uid := s.Kubectl(t, "", "-n", namespace, "get", "edb", "etcd", "-o", "jsonpath={.metadata.uid}")

	s.helm(t, "upgrade", "--reuse-values", "--set=concurrency=2")
	args := s.Kubectl(t, "", "-n", "etcd-dr", "get", "deployment", "etcd-dr", "-o", "jsonpath={.spec.template.spec.containers[0].args}")
	if !strings.Contains(args, "--concurrency=2") {
		t.Errorf("after the upgrade the arguments are %s", args)
	}
	s.wantOneBackup(t, namespace, "after")

	s.helm(t, "uninstall")
	s.Kubectl(t, "", "delete", "namespace", "etcd-dr", "--timeout", patience.String())
	kept := s.Kubectl(t, "", "-n", namespace, "get", "edb", "etcd", "-o", "jsonpath={.metadata.uid}{.metadata.finalizers}")
	if kept != uid {
		t.Errorf("UID and finalizers of the EtcdBackup are %s, want %s", kept, uid)
	}
	s.Kubectl(t, "", "delete", "namespace", namespace, "--timeout", patience.String())
	s.Kubectl(t, "", "delete", "crd", "etcdbackups.etcd-dr.io", "--timeout", patience.String())
	stored := len(s.backups(t, namespace))
	if stored < 2 {
		t.Errorf("the store has %d backups, want those before and after the upgrade", stored)
	}
}

// helm runs an order on the release etcd-dr of the chart, and waits until it is done.
func (s *site) helm(t *testing.T, order string, more ...string) {
	t.Helper()
	args := []string{tools.Path(t, "helm", "helm"), order, "etcd-dr"}
	if order != "uninstall" {
		chart, err := filepath.Abs("../../deploy/kubernetes/chart")
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, chart)
	}
	args = slices.Concat(args, []string{"--namespace=etcd-dr", "--wait", "--timeout=" + patience.String()}, more)
	out, err := s.Command(nil, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
}

// wantOneBackup takes a backup now with the settings of the EtcdBackup etcd.
func (s *site) wantOneBackup(t *testing.T, namespace, name string) {
	t.Helper()
	s.Kubectl(t, "{apiVersion: etcd-dr.io/v1alpha1, kind: EtcdBackup, metadata: {name: "+name+", namespace: "+namespace+"}, spec: {like: etcd}}",
		"apply", "-f", "-")
	s.Eventually(t, "Completed", "-n", namespace, "get", "edb", name, "-o", "jsonpath={.status.phase}")
}
