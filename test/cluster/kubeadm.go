package cluster

import (
	_ "embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/tools"
)

// Kubeadm is a Kubernetes that kubeadm has set up, with a control plane on each node: kubeadm init on n1, and kubeadm join on the others. The
// kubelet of each node runs etcd, kube-apiserver, kube-controller-manager and kube-scheduler as static pods. Their manifests are in
// /etc/kubernetes/manifests of the node, etcd's data dir is /var/lib/etcd, and the certificates are in /etc/kubernetes/pki: Disk returns
// where a test reaches these folders.
//
// The kubelet and the static pods of a node use the API server of that node, and all other clients use that of n1. Secrets are encrypted.
// StopComponent and AuditLog do not work here.
type Kubeadm struct{ *Cluster }

// StartKubeadm starts a cluster of this kind with a number of nodes, 1 to 9. It ends with the test.
func StartKubeadm(t testing.TB, nodes int) *Kubeadm {
	t.Helper()
	k := &Kubeadm{newCluster(t, nodes)}
	k.env = append(k.env, "KUBEADM=true")
	k.makeAccess(t)
	for _, node := range k.nodes {
		k.writeFile(t, k.Disk(node, "/etc/kubernetes/pki/encryption.yaml"), encryption)
		k.writeFile(t, k.Disk(node, "/etc/kubernetes/kubeadm.yaml"), k.config(t, node))
	}
	k.up(t)
	return k
}

// APIServer returns the URL of a node's API server, for kubectl --server.
func (k *Kubeadm) APIServer(node string) string {
	return "https://" + nodeAddress(node).String() + ":6443"
}

// Etcdctl returns a command that runs etcdctl on a node. Its endpoint is the member there.
func (k *Kubeadm) Etcdctl(node string, args ...string) *exec.Cmd {
	env := []string{
		"ETCDCTL_ENDPOINTS=https://127.0.0.1:2379", "ETCDCTL_CACERT=/etc/kubernetes/pki/etcd/ca.crt",
		"ETCDCTL_CERT=/etc/kubernetes/pki/etcd/healthcheck-client.crt", "ETCDCTL_KEY=/etc/kubernetes/pki/etcd/healthcheck-client.key",
	}
	return k.In(node, env, append([]string{"etcdctl"}, args...)...)
}

// WaitEnded waits until the static pod of a program, such as etcd, has ended on a node.
func (k *Kubeadm) WaitEnded(t testing.TB, node, program string) {
	t.Helper()
	await(t, program+" has ended on "+node, func() bool { return k.In(node, nil, "pgrep", "-f", "^"+program+" ").Run() != nil })
}

// Systemctl returns a function of bash that stands in for systemctl on a node. It stops and starts the kubelet alone.
func (k *Kubeadm) Systemctl(node string) string {
	folder := filepath.Join(k.state, node)
	return fmt.Sprintf(systemctl, filepath.Join(folder, "off", "kubelet"), filepath.Join(folder, "stopped", "kubelet"))
}

const systemctl = `systemctl() {
	case $* in
	"stop kubelet") touch %[1]s; until [[ -e %[2]s ]]; do sleep 0.1; done ;;
	"start kubelet") rm -f %[1]s ;;
	*) return 1 ;;
	esac
}
`

// encryption is the configuration with which the API servers encrypt Secrets.
const encryption = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: [secrets]
    providers:
      - secretbox: {keys: [{name: first, secret: MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=}]}
`

//go:embed kubeadm.yaml
var kubeadmConfig string

// config returns the configuration of kubeadm for a node. The pods mount the programs of Kubernetes from the machine: to load them as images
// would take longer than all else.
func (k *Kubeadm) config(t testing.TB, node string) string {
	t.Helper()
	programs := filepath.Dir(tools.Path(t, "kubernetes", "kubeadm"))
	values := strings.NewReplacer("NODE", node, "ADDRESS", nodeAddress(node).String(), "FIRST", nodeAddress("n1").String(), "PROGRAMS", programs)
	return values.Replace(kubeadmConfig)
}
