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
// Nothing leads from there to the host, and all of it ends with process 1 of the control plane. Tests observe the cluster by commands
// that run in these namespaces.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/process"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

const (
	nodes        = 3
	startTimeout = 10 * time.Minute // on cores that other tests use too
	waitTimeout  = 10 * time.Minute
)

// controlPlane is the address of the API server, of DNS, and of the store.
var controlPlane = net.IPv4(198, 18, 0, 1)

// Cluster is a running Kubernetes.
type Cluster struct {
	state   string   // folder
	scripts string   // folder
	env     []string // of the scripts
	life    *os.File // a pipe: the cluster ends with the process that holds it
}

// Start starts a cluster, which ends with the test. It needs root, and the programs of test/tools.
func Start(t testing.TB) *Cluster {
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
	_, source, _, _ := runtime.Caller(0)
	dir := t.TempDir()
	c := &Cluster{state: filepath.Join(dir, "state"), scripts: filepath.Dir(source)}
	c.env = append(os.Environ(), "STATE="+c.state, "TOOLS="+filepath.Dir(filepath.Dir(apiserver)), fmt.Sprintf("NODES=%d", nodes))
	c.writeAccess(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	c.life = write
	t.Cleanup(func() { c.end(t) })
	c.run(t, startTimeout, read, filepath.Join(c.scripts, "up.sh"))
	return c
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

// end ends the cluster. If the test has failed, it shows the ends of the logs first.
func (c *Cluster) end(t testing.TB) {
	if t.Failed() {
		logs, _ := filepath.Glob(filepath.Join(c.state, "log", "*.log"))
		for _, log := range logs {
			t.Logf("%s:\n%s", filepath.Base(log), process.Excerpt(log))
		}
	}
	c.run(t, waitTimeout, nil, filepath.Join(c.scripts, "down.sh"))
	_ = c.life.Close()
}

// writeAccess creates the certificates and the kubeconfigs of all components.
func (c *Cluster) writeAccess(t testing.TB) {
	t.Helper()
	access := filepath.Join(c.state, "access")
	err := os.MkdirAll(access, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	addresses := []net.IP{controlPlane, net.IPv4(198, 19, 0, 1)} // the second is that of the Service kubernetes
	users := map[string][]string{                                // the groups of each
		"system:kube-controller-manager": nil, "system:kube-scheduler": nil, "system:kube-proxy": nil,
		"admin": {"system:masters"}, "dns": {"system:masters"},
	}
	for i := range nodes {
		addresses = append(addresses, net.IPv4(198, 18, 0, byte(11+i)))
		users[fmt.Sprintf("system:node:n%d", i+1)] = []string{"system:nodes"}
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
		text := fmt.Sprintf(kubeconfig, controlPlane, certificates.CA, cert, key)
		err := os.WriteFile(filepath.Join(access, name+".kubeconfig"), []byte(text), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// kubeconfig is a template for the address, the authority's file, and the user's certificate and key.
const kubeconfig = `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: user}}]
clusters: [{name: test, cluster: {server: "https://%s:6443", certificate-authority: %q}}]
users: [{name: user, user: {client-certificate: %q, client-key: %q}}]
`

func (c *Cluster) link(t testing.TB, file, name string) {
	t.Helper()
	err := os.Symlink(file, filepath.Join(c.state, "access", name))
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
	cmd := c.Command([]string{"HOME=" + c.state}, append([]string{"kubectl"}, args...)...)
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
	for deadline := time.Now().Add(waitTimeout); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		got, err = c.Try("", args...)
		if err == nil && strings.TrimSpace(got) == want {
			return
		}
	}
	t.Fatalf("kubectl %s: got %q, want %q (%v)", strings.Join(args, " "), got, want, err)
}

// StopComponent kills a process of the control plane, such as kube-apiserver, and keeps it stopped until StartComponent.
func (c *Cluster) StopComponent(t testing.TB, name string) {
	t.Helper()
	err := os.WriteFile(filepath.Join(c.state, "off", name), nil, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	stopped := filepath.Join(c.state, "stopped", name)
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(50 * time.Millisecond) {
		_, err := os.Stat(stopped)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not stop", name)
		}
	}
}

// StartComponent starts a component that StopComponent has stopped. It does not wait until the component is ready.
func (c *Cluster) StartComponent(t testing.TB, name string) {
	t.Helper()
	err := os.Remove(filepath.Join(c.state, "off", name))
	if err != nil {
		t.Fatal(err)
	}
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
	for i := range nodes {
		node := fmt.Sprintf("n%d", i+1)
		out, err := c.In(node, nil, "ctr", "--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io", "images", "import", file).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: load %s: %v\n%s", node, file, err, out)
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
