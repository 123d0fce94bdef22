package kubernetes

import (
	"bufio"
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/cluster"
	"github.com/etcd-dr/etcd-dr/test/command"
)

// controlPlane is a Kubernetes of three nodes in kubeadm's form. Each has a copy of the repository and of the plan.
type controlPlane struct{ *cluster.Static }

var controlPlaneNodes = []string{"n1", "n2", "n3"}

// TestControlPlane restores a control plane by one command on each node, and takes that back.
func TestControlPlane(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a Kubernetes")
	}
	t.Parallel() // after TestOnKubernetes, beside others with a cluster of their own
	c := controlPlane{cluster.StartStatic(t, 3)}
	c.Kubectl(t, "", "create", "configmap", "before")
	c.dr(t, "n1", "backup", "--repo", "file:///var/lib/backups", "--cluster", "prod", "--plain", "--endpoints", "https://127.0.0.1:2379",
		"--cacert", "/etc/kubernetes/pki/etcd/ca.crt", "--cert", "/etc/kubernetes/pki/etcd/healthcheck-client.crt",
		"--key", "/etc/kubernetes/pki/etcd/healthcheck-client.key")
	c.Kubectl(t, "", "create", "configmap", "after")
	c.dr(t, "n1", "restore", "--repo", "file:///var/lib/backups", "--cluster", "prod", "--plan-out", "/var/lib/backups/plan.json")
	for _, node := range controlPlaneNodes[1:] {
		out, err := exec.Command("cp", "-r", c.Disk("n1", "/var/lib/backups"), c.Disk(node, "/var/lib/")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}

	into := []string{"restore", "--repo", "file:///var/lib/backups", "--plan", "/var/lib/backups/plan.json", "--into", "kubeadm", "--confirm", "kubeadm"}
	c.killedWhile(t, "n1", "stopping all members", into...)
	results := c.onAll(t, func(string) []string { return into })
	c.wantConfigMaps(t, "before")
	for _, node := range controlPlaneNodes {
		out, err := c.Etcdctl(node, "member", "list").CombinedOutput()
		if err != nil || bytes.Count(out, []byte(", started, ")) != 3 {
			t.Errorf("members on %s: %v\n%s", node, err, out)
		}
	}
	c.Kubectl(t, "", "wait", "--for=condition=Ready", "node", "--all", "--timeout=5m")

	c.onAll(t, func(node string) []string {
		_, line, _ := strings.Cut(results[node], "to go back")
		line, _, _ = strings.Cut(line, ", which loses")
		return strings.Fields(line)[1:]
	})
	c.wantConfigMaps(t, "after", "before")
}

// dr runs dr on a node.
func (c controlPlane) dr(t *testing.T, node string, args ...string) string {
	t.Helper()
	out, err := c.In(node, nil, append([]string{command.Path()}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("on %s: dr %s: %v\n%s", node, strings.Join(args, " "), err, out)
	}
	t.Logf("on %s:\n%s", node, out)
	return string(out)
}

// killedWhile runs dr on a node, and kills it when it has printed words.
func (c controlPlane) killedWhile(t *testing.T, node, words string, args ...string) {
	t.Helper()
	cmd := c.In(node, nil, append([]string{command.Path()}, args...)...)
	output, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	printed := false
	for lines := bufio.NewScanner(output); !printed && lines.Scan(); {
		printed = strings.Contains(lines.Text(), words)
	}
	out, err := c.In(node, nil, "pkill", "-KILL", "-f", "restore --repo").CombinedOutput()
	if err != nil || !printed {
		t.Errorf("kill dr on %s: %v, %s; printed: %v", node, err, out, printed)
	}
	_ = cmd.Wait() // it was killed
}

// onAll runs dr on all nodes at once, and returns the output on each.
func (c controlPlane) onAll(t *testing.T, args func(node string) []string) map[string]string {
	t.Helper()
	type result struct {
		node, out string
		err       error
	}
	ended := make(chan result)
	for _, node := range controlPlaneNodes {
		go func() {
			out, err := c.In(node, nil, append([]string{command.Path()}, args(node)...)...).CombinedOutput()
			ended <- result{node, string(out), err}
		}()
	}
	all := map[string]string{}
	for range controlPlaneNodes {
		r := <-ended
		t.Logf("on %s:\n%s", r.node, r.out)
		if r.err != nil {
			t.Errorf("on %s: %v", r.node, r.err)
		}
		all[r.node] = r.out
	}
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// wantConfigMaps fails the test unless the API server of each node has these ConfigMaps in the default namespace.
func (c controlPlane) wantConfigMaps(t *testing.T, want ...string) {
	t.Helper()
	for _, node := range controlPlaneNodes {
		got := c.Kubectl(t, "", "--server", c.APIServer(node), "get", "configmaps", "-o", "name")
		var names []string
		for _, name := range strings.Fields(got) {
			name = strings.TrimPrefix(name, "configmap/")
			if name != "kube-root-ca.crt" {
				names = append(names, name)
			}
		}
		if strings.Join(names, " ") != strings.Join(want, " ") {
			t.Errorf("on %s: ConfigMaps %q, want %q", node, names, want)
		}
	}
}
