package kubernetes

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// TestSoakPartsAway restores clusters of which a node or a disk is missing, or whose store does not answer. It has a Kubernetes of its own,
// because other tests need all nodes of theirs, and the store.
func TestSoakPartsAway(t *testing.T) {
	soak.Only(t, "waits minutes for nodes to be lost")
	s := newSite(t)
	t.Run("Stopped", s.testNodeStopped)
	t.Run("Partitioned", s.testNodePartitioned)
	t.Run("DiskLost", s.testDiskLost)
}

// testNodeStopped restores members on volumes that each node reaches. A node is stopped, so nobody confirms that its member has ended: the
// restore waits, and names the node. It continues once the node is marked as out of service.
func (s *site) testNodeStopped(t *testing.T) {
	const namespace = "mill"
	s.startEtcd(t, namespace, "3.6")
	journal := s.journal(t, namespace, "early", 5)
	s.backUp(t, namespace)
	s.put(t, namespace, "late", "after the backup")
	node := s.nodeOf(t, namespace, "etcd-2")
	s.StopNode(t, node)
	s.WaitNode(t, node, "Unknown")

	r := s.beginRestore(t, namespace)
	r.wait(t, "member etcd-2 ran on node "+node+": if that node is down, start it, or make sure that it stays off, then kubectl taint nodes "+node)
	s.Kubectl(t, "", "taint", "nodes", node, outOfService)
	r.wantRestored(t)
	s.wantServed(t, namespace, journal)
	s.Kubectl(t, "", "taint", "nodes", node, outOfService+"-")
	s.StartNode(t, node)
	s.WaitNode(t, node, "True")
	s.wantServed(t, namespace, journal)
	s.Kubectl(t, "", "delete", "namespace", namespace, "--timeout", patience.String())
}

const outOfService = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"

// nodeOf returns the node on which a pod runs.
func (s *site) nodeOf(t *testing.T, namespace, pod string) string {
	t.Helper()
	return s.Kubectl(t, "", "-n", namespace, "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
}

// restoring is a run of dr that restores a namespace's etcd in place.
type restoring struct {
	output syncBuffer
	ended  chan error
}

// beginRestore begins to restore the newest backup in place.
func (s *site) beginRestore(t *testing.T, namespace string) *restoring {
	t.Helper()
	r := &restoring{ended: make(chan error, 1)}
	cmd := s.Command(s.store.Env(), append([]string{command.Path()}, s.intoArgs(namespace, "--confirm", "etcd")...)...)
	cmd.Stdout, cmd.Stderr = &r.output, &r.output
	err := cmd.Start()
	if err != nil {
		t.Fatal(err)
	}
	go func() { r.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if t.Failed() {
			t.Log(r.output.String())
		}
	})
	return r
}

// wait waits until the restore has printed a text.
func (r *restoring) wait(t *testing.T, text string) {
	t.Helper()
	eventually(t, text, func() bool { return r.said(text) })
}

// said reports whether the restore has printed a text.
func (r *restoring) said(text string) bool { return strings.Contains(r.output.String(), text) }

// wantRestored waits for the end of the restore.
func (r *restoring) wantRestored(t *testing.T) {
	t.Helper()
	err := <-r.ended
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r.output.String())
}

// syncBuffer is a buffer that a process fills while a test reads it.
type syncBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// testNodePartitioned restores members on local volumes. A node is cut off, and its member runs on. Its disk counts as lost once its claim
// is deleted: the member is built on another node. The node returns with the old member, which changes nothing.
func (s *site) testNodePartitioned(t *testing.T) {
	const namespace = "weir"
	s.LocalVolumes(t, namespace, 512<<20, 2)
	s.Kubectl(t, "", "create", "namespace", namespace)
	s.applyEtcd(t, namespace, "3.6", "accessModes: [ReadWriteOnce]\n", "accessModes: [ReadWriteOnce]\n        storageClassName: local\n", "storage: 1Gi", "storage: 500Mi")
	journal := s.journal(t, namespace, "early", 5)
	s.backUp(t, namespace)
	s.put(t, namespace, "late", "after the backup")
	node := s.nodeOf(t, namespace, "etcd-2")
	s.Partition(t, node)
	s.WaitNode(t, node, "Unknown")

	r := s.beginRestore(t, namespace)
	r.wait(t, "if the disk is lost, kubectl -n weir delete pvc data-etcd-2 --wait=false before that")
	s.Kubectl(t, "", "-n", namespace, "delete", "pvc", "data-etcd-2", "--wait=false")
	s.Kubectl(t, "", "taint", "nodes", node, outOfService)
	r.wantRestored(t)
	s.Kubectl(t, "", "taint", "nodes", node, outOfService+"-")
	s.Heal(t, node)
	s.WaitNode(t, node, "True")
	s.wantServed(t, namespace, journal)
	s.Kubectl(t, "", "delete", "namespace", namespace, "--timeout", patience.String())
}
