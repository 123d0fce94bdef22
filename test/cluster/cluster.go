// Package cluster starts a real Kubernetes for tests: kube-apiserver, its controllers and its scheduler, and nodes with kubelet, containerd
// and kube-proxy, on which pods run. It takes about ten seconds.
//
// The control plane and each node have namespaces of their own:
//
//	control plane 198.18.0.1: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, DNS, the store
//	  ├─ n1 198.18.0.11: containerd, kubelet, kube-proxy; pods in 198.18.1.0/24
//	  ├─ n2 198.18.0.12
//	  └─ n3 198.18.0.13
//
// With StartKubeadm, etcd and the components of Kubernetes are static pods of the nodes instead, as kubeadm has them.
//
// Nothing leads from there to the host, and all of it ends with process 1 of the control plane. Clusters that run at the same time share
// nothing. Tests observe the cluster by commands that run in these namespaces, and read and damage the files of its volumes from outside.
package cluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/process"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

const (
	startTimeout = 10 * time.Minute // on cores that other tests use too
	waitTimeout  = 10 * time.Minute
)

// controlPlane is the address of the API server, of DNS, and of the store.
var controlPlane = net.IPv4(198, 18, 0, 1)

// Cluster is a running Kubernetes.
type Cluster struct {
	nodes   []string // n1, n2, ...
	state   string   // folder
	scripts string   // folder
	env     []string // of the scripts
	life    *os.File // a pipe: the cluster ends with the process that holds it
}

// Start starts a cluster, which ends with the test. It needs root, and the programs of test/tools.
func Start(t testing.TB) *Cluster {
	t.Helper()
	c := newCluster(t, 3)
	c.writeAccess(t)
	c.up(t)
	return c
}

// newCluster returns a cluster of a number of nodes that has not started. It skips the test on machines that cannot run one.
func newCluster(t testing.TB, nodes int) *Cluster {
	t.Helper()
	if os.Getuid() != 0 {
		tools.Missing(t, "a cluster needs root")
	}
	_, err := os.Stat("/sys/fs/cgroup/memory")
	if err != nil {
		tools.Missing(t, "a cluster needs cgroups of version 1: "+err.Error())
	}
	apiserver := tools.Path(t, "kubernetes", "kube-apiserver")
	tools.Path(t, "images", "pause.tar")
	up, err := tools.Source("test/cluster/up.sh")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{state: filepath.Join(t.TempDir(), "state"), scripts: filepath.Dir(up)}
	c.env = append(os.Environ(), "STATE="+c.state, "TOOLS="+filepath.Dir(filepath.Dir(apiserver)), fmt.Sprintf("NODES=%d", nodes), "KUBEADM=")
	for i := range nodes {
		c.nodes = append(c.nodes, fmt.Sprint("n", i+1))
	}
	return c
}

// up starts all processes.
func (c *Cluster) up(t testing.TB) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	c.life = write
	t.Cleanup(func() { c.end(t) })
	c.run(t, startTimeout, read, filepath.Join(c.scripts, "up.sh"))
}

// run runs a script of this package, which gets pipe, unless it is nil, as file 3.
func (c *Cluster) run(t testing.TB, timeout time.Duration, pipe *os.File, command ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = c.env
	if pipe != nil {
		cmd.ExtraFiles = []*os.File{pipe}
	}
	// The processes that up.sh leaves running must not keep its output open.
	out, err := os.CreateTemp(t.TempDir(), "output")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	if err != nil {
		text, _ := os.ReadFile(out.Name())
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, text)
	}
}

// runInside runs a command in the namespaces of the control plane.
func (c *Cluster) runInside(t testing.TB, command ...string) {
	t.Helper()
	c.run(t, waitTimeout, nil, append([]string{filepath.Join(c.scripts, "in.sh"), "control-plane"}, command...)...)
}

// end ends the cluster. If the test has failed, it shows the ends of the components' logs first.
func (c *Cluster) end(t testing.TB) {
	if t.Failed() {
		logs, _ := filepath.Glob(filepath.Join(c.state, "log", "*.log"))
		pods, _ := filepath.Glob(c.Disk("n*", "/var/log/pods/kube-system_*/*/*.log"))
		for _, log := range append(logs, pods...) {
			t.Logf("%s:\n%s", strings.TrimPrefix(log, c.state), process.Excerpt(log))
		}
	}
	c.run(t, waitTimeout, nil, filepath.Join(c.scripts, "down.sh"))
	_ = c.life.Close()
}

// makeAccess creates the folder of the certificates and the kubeconfigs.
func (c *Cluster) makeAccess(t testing.TB) {
	t.Helper()
	err := os.MkdirAll(c.access(), 0o700)
	if err != nil {
		t.Fatal(err)
	}
}

// writeAccess creates the certificates and the kubeconfigs of all components.
func (c *Cluster) writeAccess(t testing.TB) {
	t.Helper()
	c.makeAccess(t)
	addresses := []net.IP{controlPlane, net.IPv4(198, 19, 0, 1)} // the second is that of the Service kubernetes
	users := map[string][]string{                                // the groups of each
		"system:kube-controller-manager": nil, "system:kube-scheduler": nil, "system:kube-proxy": nil,
		"admin": {"system:masters"}, "dns": {"system:masters"},
	}
	for _, node := range c.nodes {
		addresses = append(addresses, nodeAddress(node))
		users["system:node:"+node] = []string{"system:nodes"}
	}
	certificates := servers.NewCertificates(t, addresses...)
	c.link(t, certificates.CA, "ca.crt")
	c.link(t, certificates.ServerCert, "server.crt")
	c.link(t, certificates.ServerKey, "server.key")
	for user, groups := range users {
		name := strings.TrimPrefix(user[strings.LastIndex(user, ":")+1:], "kube-")
		cert, key := certificates.User(user, name, groups...)
		c.link(t, cert, name+".crt")
		c.link(t, key, name+".key")
		c.writeFile(t, c.access(name+".kubeconfig"), c.kubeconfig(t, name))
	}
}

// access returns the path of a file of writeAccess.
func (c *Cluster) access(file ...string) string {
	return filepath.Join(append([]string{c.state, "access"}, file...)...)
}

// nodeAddress returns the address of a node, such as n1.
func nodeAddress(node string) net.IP {
	number, _ := strconv.Atoi(strings.TrimPrefix(node, "n"))
	return net.IPv4(198, 18, 0, byte(10+number))
}

// kubeconfig returns a kubeconfig for a user of writeAccess. It contains the certificates.
func (c *Cluster) kubeconfig(t testing.TB, user string) string {
	t.Helper()
	encode := func(file string) string { return base64.StdEncoding.EncodeToString([]byte(c.read(t, file))) }
	return fmt.Sprintf(kubeconfigText, controlPlane, encode("ca.crt"), encode(user+".crt"), encode(user+".key"))
}

// read returns the content of a file of writeAccess.
func (c *Cluster) read(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile(c.access(file))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// writeFile writes a file, and its folder, for root.
func (c *Cluster) writeFile(t testing.TB, path, content string) {
	t.Helper()
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

// kubeconfigText is a template for the address, the authority's certificate, and the user's certificate and key.
const kubeconfigText = `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: user}}]
clusters: [{name: test, cluster: {server: "https://%s:6443", certificate-authority-data: %s}}]
users: [{name: user, user: {client-certificate-data: %s, client-key-data: %s}}]
`

func (c *Cluster) link(t testing.TB, file, name string) {
	t.Helper()
	err := os.Symlink(file, c.access(name))
	if err != nil {
		t.Fatal(err)
	}
}

// Command returns a command that runs in the namespaces of the control plane, with kubectl and etcdctl in its path. Additional
// environment variables have the form KEY=VALUE.
func (c *Cluster) Command(env []string, command ...string) *exec.Cmd {
	return c.In("control-plane", env, command...)
}

// In is Command for the namespaces of a node, such as n1.
func (c *Cluster) In(node string, env []string, command ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.scripts, "in.sh"), append([]string{node}, command...)...)
	cmd.Env = append(append([]string{}, c.env...), env...)
	return cmd
}

// Try runs kubectl with a text on stdin, and returns its output. The error contains its stderr.
func (c *Cluster) Try(stdin string, args ...string) (string, error) {
	cmd := c.Command([]string{"HOME=" + c.state, "GOGC=400"}, append([]string{"kubectl"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w\n%s%s", strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), err
}

// Kubectl is Try for a command that has to succeed.
func (c *Cluster) Kubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	out, err := c.Try(stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Eventually waits until kubectl prints the expected text, without surrounding white space.
func (c *Cluster) Eventually(t testing.TB, want string, args ...string) {
	t.Helper()
	var got string
	var err error
	for start := time.Now(); time.Since(start) < waitTimeout; time.Sleep(process.Pause(start)) {
		got, err = c.Try("", args...)
		if err == nil && strings.TrimSpace(got) == want {
			return
		}
	}
	t.Fatalf("kubectl %s: got %q, want %q (%v)", strings.Join(args, " "), got, want, err)
}

// StopComponent kills a process of the control plane, such as kube-apiserver, and keeps it stopped until StartComponent or the end of the
// test.
func (c *Cluster) StopComponent(t testing.TB, name string) {
	t.Helper()
	t.Cleanup(func() { c.StartComponent(t, name) })
	err := os.WriteFile(filepath.Join(c.state, "off", name), nil, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	await(t, name+" is stopped", func() bool { return exists(c.state, "stopped", name) })
}

// StartComponent starts a component that StopComponent has stopped. It does not wait until the component is ready.
func (c *Cluster) StartComponent(t testing.TB, name string) {
	t.Helper()
	err := os.RemoveAll(filepath.Join(c.state, "off", name))
	if err != nil {
		t.Fatal(err)
	}
	await(t, name+" is started", func() bool { return !exists(c.state, "stopped", name) })
}

// await waits until a condition holds.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited until %s", what)
		}
	}
}

func exists(path ...string) bool {
	_, err := os.Stat(filepath.Join(path...))
	return err == nil
}

// LoadDR builds the image of dr from this tree, and makes it available on all nodes as the name that it returns.
func (c *Cluster) LoadDR(t testing.TB) (name string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dr.tar")
	c.run(t, startTimeout, nil, filepath.Join(c.scripts, "..", "..", "deploy", "image.sh"), file, "etcd-dr.test/dr", "v1", runtime.GOARCH)
	c.LoadImage(t, file)
	return "etcd-dr.test/dr:v1"
}

// LoadImage makes an image available on all nodes. The file is an archive of an OCI layout.
func (c *Cluster) LoadImage(t testing.TB, file string) {
	t.Helper()
	for _, node := range c.nodes {
		out, err := c.In(node, nil, "ctr", "--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io", "images", "import", file).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: load %s: %v\n%s", node, file, err, out)
		}
	}
}

// TagImage makes an image of all nodes available under another name too.
func (c *Cluster) TagImage(t testing.TB, from, to string) {
	t.Helper()
	for _, node := range c.nodes {
		out, err := c.In(node, nil, "ctr", "--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io", "images", "tag", from, to).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: tag %s: %v\n%s", node, from, err, out)
		}
	}
}

// AuditLog returns the requests of service accounts that the API server has served: a JSON object a line (audit.k8s.io/v1, Event).
func (c *Cluster) AuditLog(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.state, "log", "audit.json"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return data
}
