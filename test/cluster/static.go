package cluster

import (
	"embed"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/tools"
)

// Static is a Kubernetes whose control plane runs in kubeadm's form. The kubelet of each node runs etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler as static pods. Their manifests are in /etc/kubernetes/manifests of the node, etcd's data dir
// is /var/lib/etcd, and the certificates are in /etc/kubernetes/pki: Disk returns where a test reaches these folders.
//
// The kubelet and the static pods of a node use the API server of that node, and all other clients use that of n1. StopComponent and
// AuditLog do not work here.
type Static struct{ *Cluster }

// StartStatic starts a cluster of this kind with a number of nodes, 1 to 9. It ends with the test.
func StartStatic(t testing.TB, nodes int) *Static {
	t.Helper()
	s := &Static{newCluster(t, nodes)}
	s.env = append(s.env, "STATIC=true")
	s.writeAccess(t, func(user string) net.IP {
		if slices.Contains(s.nodes, user) {
			return nodeAddress(user)
		}
		return nodeAddress("n1")
	})
	for _, node := range s.nodes {
		s.writeDisk(t, node)
	}
	s.up(t)
	return s
}

// APIServer returns the URL of a node's API server, for kubectl --server.
func (s *Static) APIServer(node string) string {
	return "https://" + nodeAddress(node).String() + ":6443"
}

// Etcdctl returns a command that runs etcdctl on a node. Its endpoint is the member there.
func (s *Static) Etcdctl(node string, args ...string) *exec.Cmd {
	env := []string{
		"ETCDCTL_ENDPOINTS=https://127.0.0.1:2379", "ETCDCTL_CACERT=/etc/kubernetes/pki/etcd/ca.crt",
		"ETCDCTL_CERT=/etc/kubernetes/pki/etcd/healthcheck-client.crt", "ETCDCTL_KEY=/etc/kubernetes/pki/etcd/healthcheck-client.key",
	}
	return s.In(node, env, append([]string{"etcdctl"}, args...)...)
}

// WaitEnded waits until the static pod of a program, such as etcd, has ended on a node.
func (s *Static) WaitEnded(t testing.TB, node, program string) {
	t.Helper()
	await(t, program+" has ended on "+node, func() bool { return s.In(node, nil, "pgrep", "-f", "^"+program+" ").Run() != nil })
}

// pki maps files in /etc/kubernetes/pki to those of writeAccess.
var pki = map[string]string{
	"ca.crt": "ca.crt", "sa.pub": "server.crt", "sa.key": "server.key",
	"apiserver.crt": "server.crt", "apiserver.key": "server.key",
	"apiserver-kubelet-client.crt": "admin.crt", "apiserver-kubelet-client.key": "admin.key",
	"apiserver-etcd-client.crt": "admin.crt", "apiserver-etcd-client.key": "admin.key",
	"etcd/ca.crt": "ca.crt", "etcd/server.crt": "server.crt", "etcd/server.key": "server.key",
	"etcd/peer.crt": "server.crt", "etcd/peer.key": "server.key",
	"etcd/healthcheck-client.crt": "admin.crt", "etcd/healthcheck-client.key": "admin.key",
}

// encryption is the configuration with which the API servers encrypt Secrets. kubeadm's has none.
const encryption = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: [secrets]
    providers:
      - secretbox: {keys: [{name: first, secret: MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=}]}
`

// writeDisk writes what kubeadm writes to a node.
func (s *Static) writeDisk(t testing.TB, node string) {
	t.Helper()
	for name, file := range pki {
		s.writeFile(t, s.Disk(node, filepath.Join("/etc/kubernetes/pki", name)), s.read(t, file))
	}
	s.writeFile(t, s.Disk(node, "/etc/kubernetes/pki/encryption.yaml"), encryption)
	for _, user := range []string{"admin", "controller-manager", "scheduler"} {
		s.writeFile(t, s.Disk(node, filepath.Join("/etc/kubernetes", user+".conf")), s.kubeconfig(t, user, nodeAddress(node)))
	}
	// control-plane.sh moves the other two into the folder when the API servers are ready.
	s.writeManifest(t, node, "manifests/etcd.yaml")
	s.writeManifest(t, node, "manifests/kube-apiserver.yaml")
	s.writeManifest(t, node, "kube-controller-manager.yaml")
	s.writeManifest(t, node, "kube-scheduler.yaml")
}

//go:embed static
var manifests embed.FS

// writeManifest writes a manifest to a path in /etc/kubernetes. The pods mount the programs of Kubernetes from the machine: to load them as
// images would take longer than all else.
func (s *Static) writeManifest(t testing.TB, node, path string) {
	t.Helper()
	text, err := manifests.ReadFile("static/" + filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	programs := filepath.Dir(tools.Path(t, "kubernetes", "kube-apiserver"))
	values := strings.NewReplacer("NODE", node, "ADDRESS", nodeAddress(node).String(), "MEMBERS", s.members(), "PROGRAMS", programs)
	s.writeFile(t, s.Disk(node, filepath.Join("/etc/kubernetes", path)), values.Replace(string(text)))
}

// members returns the value of --initial-cluster.
func (s *Static) members() string {
	var members []string
	for _, node := range s.nodes {
		members = append(members, node+"=https://"+nodeAddress(node).String()+":2380")
	}
	return strings.Join(members, ",")
}
