package kubeadm

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// provisioned is the file with which Cluster API's bootstrap providers report that a host is a node. It is gone after a reboot.
// (Cluster API: docs/book/src/developer/providers/contracts/bootstrap-config.md)
const provisioned = "/run/cluster-api/bootstrap-success.complete"

// scripts are the files that stay on a host with the command that writes that file: cloud-init's, and Ignition's.
// (Cluster API: bootstrap/kubeadm/pkg/cloudinit, pkg/ignition/clc; cloud-init: cloudinit/config/cc_runcmd.py)
var scripts = []string{"/var/lib/cloud/instance/scripts/runcmd", "/etc/kubeadm.sh"}

// CheckClusterAPI returns a finding if Cluster API has provisioned the host whose root folder is root, and nil otherwise. Cluster API deletes a
// machine whose node is missing or unhealthy, if a MachineHealthCheck demands it, and removes members that belong to no machine
// (KubeadmControlPlane, reconcileEtcdMembers). The restored state may have other nodes than there are machines.
func (p *Pods) CheckClusterAPI(root string) []handoff.Finding {
	if !isProvisioned(root) {
		return nil
	}
	pause := "kubectl -n NAMESPACE patch cluster.cluster.x-k8s.io " + cmp.Or(p.clusterName(), "NAME") + ` --type=merge -p '{"spec":{"paused":true}}'`
	return []handoff.Finding{{
		Text: "Cluster API has provisioned this host, and may delete its machine or remove its member during the restore, or afterwards if the restored nodes " +
			"are not its machines",
		Remedy: "pause it before, on the management cluster: " + pause + "; set paused to false once each machine has a node that is ready",
	}}
}

// isProvisioned reports whether Cluster API has provisioned the host whose root folder is root.
func isProvisioned(root string) bool {
	_, err := os.Lstat(filepath.Join(root, provisioned))
	if err == nil {
		return true
	}
	for _, name := range scripts {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err == nil && bytes.Contains(text, []byte(provisioned)) {
			return true
		}
	}
	return false
}

// clusterName returns the name of the cluster; "" if it is not known. Cluster API gives kubeadm the name of its Cluster
// (bootstrap/kubeadm/reconcilers/kubeadmconfig), and kubeadm gives it to the controller manager.
func (p *Pods) clusterName() string {
	pod, err := p.read(controllerManager)
	if err != nil {
		return ""
	}
	return processOf(pod).Flag("cluster-name")
}
