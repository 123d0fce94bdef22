package cluster

import (
	"path/filepath"
	"testing"
)

// StopNode kills a node, such as n1: the kubelet, containerd and all containers end at once. Its disk and its volumes stay. The node remains
// stopped until StartNode or the end of the test. The API server reports it about 12 seconds later: see WaitNode.
func (c *Cluster) StopNode(t testing.TB, node string) {
	t.Helper()
	t.Cleanup(func() { c.StartNode(t, node) })
	c.runInside(t, filepath.Join(c.scripts, "node-down.sh"), node)
}

// StartNode starts a node, unless it runs. It does not wait until the node is ready.
func (c *Cluster) StartNode(t testing.TB, node string) {
	t.Helper()
	if !exists(c.state, node, "pid") {
		c.runInside(t, filepath.Join(c.scripts, "node-up.sh"), node)
	}
}

// Partition cuts a node off from the control plane, the store and the other nodes until Heal or the end of the test. Its containers run on.
// The API server reports it about 12 seconds later: see WaitNode.
func (c *Cluster) Partition(t testing.TB, node string) {
	t.Helper()
	t.Cleanup(func() { c.Heal(t, node) })
	c.runInside(t, "ip", "link", "set", "to-"+node, "down")
}

// Heal connects a node again. It does not wait until the node is ready.
func (c *Cluster) Heal(t testing.TB, node string) {
	t.Helper()
	c.runInside(t, "ip", "link", "set", "to-"+node, "up")
}

// WaitNode waits until the API server reports the condition Ready of a node as a status: True, or Unknown if the node does not report.
func (c *Cluster) WaitNode(t testing.TB, node, status string) {
	t.Helper()
	c.Kubectl(t, "", "wait", "--for=condition=Ready="+status, "node/"+node, "--timeout", waitTimeout.String())
}
