package cluster_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/cluster"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// TestSoakKubeadm ends etcd by its manifest, and starts it again. The API server does not answer in between, and has the same objects afterwards.
// No process is left.
func TestSoakKubeadm(t *testing.T) {
	soak.Only(t, "other tests need the same of their clusters")
	var disk string
	t.Run("Cluster", func(t *testing.T) {
		k := kubeadm{cluster.StartKubeadm(t, 1)}
		disk = k.Disk("n1", "/")
		k.testEtcd(t)
		if processes(t, disk) == 0 {
			t.Error("no process uses the disk")
		}
	})
	left := processes(t, disk)
	if left > 0 {
		t.Errorf("%d processes are left", left)
	}
}

type kubeadm struct{ *cluster.Kubeadm }

func (k kubeadm) testEtcd(t *testing.T) {
	get := []string{"--server", k.APIServer("n1"), "get", "configmap", "kept", "-o", "name"}
	k.Kubectl(t, "", "create", "configmap", "kept")
	k.move(t, "manifests/etcd.yaml", "etcd.yaml")
	k.WaitEnded(t, "n1", "etcd")
	out, err := k.Try("", append(get, "--request-timeout", "2s")...)
	if err == nil {
		t.Errorf("without etcd, the API server returns %q", out)
	}
	_, err = os.Stat(k.Disk("n1", "/var/lib/etcd/member/snap/db"))
	if err != nil {
		t.Error(err)
	}
	k.move(t, "etcd.yaml", "manifests/etcd.yaml")
	k.restartAPIServer(t)
	k.Eventually(t, "configmap/kept", get...)
	members, err := k.Etcdctl("n1", "member", "list").CombinedOutput()
	if err != nil || !bytes.Contains(members, []byte(", started, n1, https://198.18.0.11:2380,")) {
		t.Errorf("members: %v\n%s", err, members)
	}
}

// restartAPIServer kills the API server. Without etcd, it would answer the kubelet after 34 seconds, and the kubelet would look at no manifest
// before.
func (k kubeadm) restartAPIServer(t *testing.T) {
	t.Helper()
	out, err := k.In("n1", nil, "pkill", "-KILL", "-f", "^kube-apiserver ").CombinedOutput()
	if err != nil {
		t.Fatalf("kill the API server: %v\n%s", err, out)
	}
}

// move moves a file in /etc/kubernetes.
func (k kubeadm) move(t *testing.T, from, to string) {
	t.Helper()
	folder := k.Disk("n1", "/etc/kubernetes")
	err := os.Rename(filepath.Join(folder, from), filepath.Join(folder, to))
	if err != nil {
		t.Fatal(err)
	}
}

// processes returns how many processes of this machine have mounted a part of the folder.
func processes(t *testing.T, folder string) (count int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		mounts, _ := os.ReadFile(file) // the process may have ended
		if bytes.Contains(mounts, []byte(folder)) {
			count++
		}
	}
	return count
}
