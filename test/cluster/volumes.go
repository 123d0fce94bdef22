package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// LocalVolumes creates PersistentVolumes of the StorageClass local, a number of them on each node, with names like NAME-n1-0. Each is an
// empty ext4 of a size in bytes that only root may write to, unless a pod has an fsGroup. They end with the test, which deletes the claims.
//
// They are files on the machine's disk, and not in memory: the kernel would charge a tmpfs to the memory limits of the pods, and etcd
// preallocates 128 MiB for its WAL.
func (c *Cluster) LocalVolumes(t testing.TB, name string, size int64, each int) {
	t.Helper()
	var objects strings.Builder
	for _, node := range c.nodes {
		for i := range each {
			volume := fmt.Sprintf("%s-%s-%d", name, node, i)
			fmt.Fprintf(&objects, localVolume, volume, size, c.mountVolume(t, node, volume, size), node)
			t.Cleanup(func() { c.Kubectl(t, "", "delete", "pv", volume, "--wait=false") })
		}
	}
	c.Kubectl(t, objects.String(), "apply", "-f", "-")
}

// localVolume is a template for the name, the size, the folder and the node.
const localVolume = `---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec:
  storageClassName: local
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  capacity: {storage: %d}
  local: {path: %s}
  nodeAffinity:
    required:
      nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]
`

// mountVolume mounts a new file system in the control plane and all nodes, and returns its folder there. Pods that use it at the end of the
// test keep it until they end.
func (c *Cluster) mountVolume(t testing.TB, node, name string, size int64) (folder string) {
	t.Helper()
	folder = filepath.Join(c.state, node, "volumes", name)
	image := folder + ".ext4"
	err := os.MkdirAll(folder, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	c.runInside(t, "mkfs.ext4", "-q", "-m", "0", image, fmt.Sprintf("%dk", size>>10))
	c.runInside(t, "mount", "-o", "loop", image, folder)
	t.Cleanup(func() { c.runInside(t, "umount", "--lazy", folder) })
	return folder
}

// Volume returns the folder of the volume that a claim is bound to, so that the test can read, damage and remove files in it. The folder is
// there on this side of the cluster's namespaces, and does not need the API server; Volume does.
func (c *Cluster) Volume(t testing.TB, namespace, claim string) (folder string) {
	t.Helper()
	name := c.Kubectl(t, "", "-n", namespace, "get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
	if name == "" {
		t.Fatalf("the claim %s/%s is not bound", namespace, claim)
	}
	inside := c.Kubectl(t, "", "get", "pv", name, "-o", "jsonpath={.spec.hostPath.path}{.spec.local.path}")
	return filepath.Join(c.root(t), inside)
}

// Disk returns where a path of a node, such as /var/lib/etcd, is on this side of the cluster's namespaces. It has to be in /etc/kubernetes,
// /var/lib or /var/log. The files remain when the node is stopped.
func (c *Cluster) Disk(node, path string) string {
	return filepath.Join(c.state, node, "disk", path)
}

// root returns the root folder of the control plane.
func (c *Cluster) root(t testing.TB) string {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(c.state, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join("/proc", strings.TrimSpace(string(pid)), "root")
}
