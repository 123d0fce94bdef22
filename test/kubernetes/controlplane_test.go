package kubernetes

import (
	"bufio"
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/cluster"
	"github.com/etcd-dr/etcd-dr/test/command"
)

// controlPlane is a Kubernetes of three nodes in kubeadm's form, in which docs/control-planes.md is followed.
type controlPlane struct {
	*cluster.Kubeadm
	page string
	dir  string   // in which all commands run, on each node: with the plan, the identity and the agents' manifest
	env  []string // that names the repository
	own  *strings.Replacer
}

var allNodes = []string{"n1", "n2", "n3"}

// TestControlPlane follows docs/control-planes.md: it rebuilds all nodes from the bucket alone, and restores etcd to a moment by one command on
// each node, after which the agents go on. It does that again at once, on a node later than on the others, and takes it back.
func TestControlPlane(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a Kubernetes")
	}
	t.Parallel() // after TestOnKubernetes, beside others with a cluster of their own
	c := newControlPlane(t)
	c.backUp(t)
	c.Kubectl(t, "", "create", "secret", "generic", "kept", "--from-literal=word=open")
	token := strings.TrimSpace(c.Kubectl(t, "", "create", "token", "default"))
	c.plan(t, c.archived(t, "before"))

	c.lose(t)
	for _, step := range c.blocks(t, "Rebuild the nodes") {
		c.onAll(t, func(node string) string { return strings.ReplaceAll(step, "NAME", node) })
	}
	c.wantConfigMaps(t, "before")
	c.wantKeys(t, token)
	c.wantMembers(t)

	revision := c.archived(t, "after")
	c.Kubectl(t, "", "create", "configmap", "mistake")
	c.plan(t, revision)
	restore := c.blocks(t, "Restore etcd")[1]
	c.wantSameKeys(t, strings.Replace(restore, "--confirm kubeadm", "--dry-run", 1))
	c.killedWhile(t, "n1", "stopping all members", restore)
	c.onAll(t, func(string) string { return restore })
	c.wantConfigMaps(t, "after", "before")
	c.wantMembers(t)
	c.plan(t, c.archived(t, "second"))

	c.Kubectl(t, "", "create", "configmap", "later")
	results := c.restoreWithout(t, "n3", restore)
	c.wantConfigMaps(t, "after", "before", "second")
	c.wantMembers(t)
	c.onAll(t, func(node string) string {
		_, line, _ := strings.Cut(results[node], "to go back")
		line, _, _ = strings.Cut(line, ", which loses")
		_, line, _ = strings.Cut(line, "dr ")
		return "dr " + line
	})
	c.wantConfigMaps(t, "after", "before", "later", "second")
}

// restoreWithout restores on all nodes but one, whose old members run on. The others serve. Then it restores on that node.
func (c controlPlane) restoreWithout(t *testing.T, late, restore string) (results map[string]string) {
	t.Helper()
	nodes := slices.DeleteFunc(slices.Clone(allNodes), func(node string) bool { return node == late })
	results = c.on(t, nodes, func(string) string { return strings.TrimSpace(restore) + " --without " + late })
	for _, node := range nodes {
		if !strings.Contains(results[node], "all members but "+late) || !strings.Contains(results[node], "kubeadm token create") {
			t.Errorf("%s does not name %s", node, late)
		}
		c.Kubectl(t, "", "--server", c.APIServer(node), "create", "configmap", "of-"+node)
		c.Kubectl(t, "", "--server", c.APIServer(node), "delete", "configmap", "of-"+node)
	}
	maps.Copy(results, c.on(t, []string{late}, func(string) string { return restore }))
	return results
}

func newControlPlane(t *testing.T) controlPlane {
	t.Helper()
	page, err := os.ReadFile("../../docs/control-planes.md")
	if err != nil {
		t.Fatal(err)
	}
	c := controlPlane{Kubeadm: cluster.StartKubeadm(t, len(allNodes)), page: string(page), dir: t.TempDir()}
	store := c.StartStore(t)
	url := store.Bucket(t, "backups")
	c.env = append(store.Env(), "DR_REPO="+url, "DR_CLUSTER=prod.kubernetes", "HOME="+c.dir)
	recipient := command.Keygen(t, filepath.Join(c.dir, "key.txt"))
	c.own = strings.NewReplacer(
		"AWS_ACCESS_KEY_ID=…", "AWS_ACCESS_KEY_ID="+store.AccessKey, "AWS_SECRET_ACCESS_KEY=…", "AWS_SECRET_ACCESS_KEY="+store.SecretKey,
		"registry.example.com/etcd-dr:v1.0.0", c.LoadDR(t), "s3://backups/etcd?region=eu-central-1", url, exampleRecipient, recipient,
		"systemctl stop kubelet", "pkill -STOP -x kubelet", "systemctl start kubelet", "pkill -CONT -x kubelet")
	agents, err := os.ReadFile("../../deploy/kubernetes/examples/archive-kubeadm.yaml")
	if err == nil {
		err = os.WriteFile(filepath.Join(c.dir, "archive-kubeadm.yaml"), []byte(c.own.Replace(string(agents))), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "", "label", "nodes", "--all", "node-role.kubernetes.io/control-plane=")
	return c
}

// blocks returns the blocks of commands of a section, with the values of this cluster.
func (c controlPlane) blocks(t *testing.T, section string) (all []string) {
	t.Helper()
	for _, text := range blocksOf(c.page, section) {
		all = append(all, c.own.Replace(text))
	}
	if len(all) == 0 {
		t.Fatalf("the page has no commands in %q", section)
	}
	return all
}

// script returns a command that runs a script on a node.
func (c controlPlane) script(node, text string) *exec.Cmd {
	cmd := c.In(node, c.env, "bash", "-euo", "pipefail", "-c", `dr() { `+command.Path()+` "$@"; }`+"\n"+text)
	cmd.Dir = c.dir
	return cmd
}

// do runs a script on a node.
func (c controlPlane) do(t *testing.T, node, text string) {
	t.Helper()
	out, err := c.script(node, text).CombinedOutput()
	t.Logf("on %s:\n%s", node, out)
	if err != nil {
		t.Fatalf("on %s: %s: %v", node, text, err)
	}
}

// backUp follows the section Back up.
func (c controlPlane) backUp(t *testing.T) {
	t.Helper()
	parts := c.blocks(t, "Back up")
	for _, part := range parts[:len(parts)-1] {
		c.do(t, "n1", part)
	}
	c.onAll(t, func(string) string { return parts[len(parts)-1] })
}

// archived creates a ConfigMap, waits until the log reaches it, and returns its revision. A revision from the seconds between a restore and
// the first backup after it cannot be restored: then it changes the ConfigMap, which takes a new one.
func (c controlPlane) archived(t *testing.T, name string) (revision string) {
	t.Helper()
	c.Kubectl(t, "", "create", "configmap", name)
	var out []byte
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", out)
			agents, err := c.Try("", "-n", "etcd-dr-archive", "logs", "-l", "app=archive", "--prefix", "--tail=40")
			t.Logf("%v\n%s", err, agents)
		}
	})
	reached := func() bool {
		var err error
		out, err = c.script("n1", "dr restore --identity key.txt --dry-run --output-dir /nowhere --old-is-dead --to-revision "+revision).CombinedOutput()
		return err == nil
	}
	eventually(t, "the log reaches the ConfigMap "+name, func() bool {
		revision = c.Kubectl(t, "", "annotate", "configmap", name, "--overwrite", "at="+time.Now().String(), "-o", "jsonpath={.metadata.resourceVersion}")
		for range 10 {
			if reached() {
				return true
			}
			time.Sleep(time.Second)
		}
		return false
	})
	return revision
}

// plan follows the beginning of Restore etcd.
func (c controlPlane) plan(t *testing.T, revision string) {
	t.Helper()
	make := strings.Replace(c.blocks(t, "Restore etcd")[0], "--plan-out", "--to-revision "+revision+" --plan-out", 1)
	c.do(t, "n1", "rm -f plan.json; "+make)
}

// lose removes everything of the control plane from all nodes.
func (c controlPlane) lose(t *testing.T) {
	t.Helper()
	remove := func(pattern string) {
		t.Helper()
		paths, err := filepath.Glob(pattern)
		for _, path := range paths {
			err = errors.Join(err, os.RemoveAll(path))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range allNodes {
		remove(c.Disk(node, "/etc/kubernetes/manifests/*")) // the kubelet watches the folder itself
		remove(c.Disk(node, "/etc/kubernetes/[^m]*"))
	}
	for _, node := range allNodes {
		for _, program := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"} {
			c.WaitEnded(t, node, program)
		}
		remove(c.Disk(node, "/var/lib/etcd"))
	}
}

// wantKeys checks that a token of a service account that was issued earlier is accepted, and that a Secret, which etcd has in encrypted
// form, can be read.
func (c controlPlane) wantKeys(t *testing.T, token string) {
	t.Helper()
	for _, node := range allNodes {
		who, err := c.Command(nil, "kubectl", "--kubeconfig=/dev/null", "--server", c.APIServer(node), "--insecure-skip-tls-verify", "--token", token,
			"auth", "whoami", "-o", "jsonpath={.status.userInfo.username}").CombinedOutput()
		if err != nil || string(who) != "system:serviceaccount:default:default" {
			t.Errorf("the user of the token on %s is %s (%v)", node, who, err)
		}
	}
	word := c.Kubectl(t, "", "get", "secret", "kept", "-o", "jsonpath={.data.word}")
	if word != "b3Blbg==" {
		t.Errorf("the Secret has %q", word)
	}
	stored, err := c.Etcdctl("n1", "get", "--print-value-only", "/registry/secrets/default/kept").Output()
	if err != nil || !bytes.HasPrefix(stored, []byte("k8s:enc:secretbox:")) {
		t.Errorf("etcd has the Secret as %.40q (%v), want it encrypted", stored, err)
	}
}

// wantSameKeys checks that a dry run has compared the keys of a node with its stored assets, and that it reports another CA.
func (c controlPlane) wantSameKeys(t *testing.T, dryRun string) {
	t.Helper()
	const differs = "this host has other keys than version"
	out, err := c.script("n2", dryRun).CombinedOutput()
	if err != nil || bytes.Contains(out, []byte(differs)) || bytes.Contains(out, []byte("the keys of this host")) {
		t.Errorf("with the same keys: %v\n%s", err, out)
	}
	ca := "/etc/kubernetes/pki/ca.crt"
	out, err = c.script("n2", "cp "+ca+" kept.crt; echo >>"+ca+"; "+strings.TrimSpace(dryRun)+"; cp kept.crt "+ca).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte(differs)) || !bytes.Contains(out, []byte(ca+": with them")) {
		t.Errorf("with another CA: %v\n%s", err, out)
	}
}

// wantMembers checks that each node has one member of the same three, and that all nodes are ready.
func (c controlPlane) wantMembers(t *testing.T) {
	t.Helper()
	for _, node := range allNodes {
		out, err := c.Etcdctl(node, "member", "list").CombinedOutput()
		if err != nil || bytes.Count(out, []byte(", started, ")) != len(allNodes) {
			t.Errorf("members on %s: %v\n%s", node, err, out)
		}
	}
	c.Kubectl(t, "", "wait", "--for=condition=Ready", "node", "--all", "--timeout", patience.String())
}

// killedWhile runs a script on a node, and kills it when it has printed words.
func (c controlPlane) killedWhile(t *testing.T, node, words, text string) {
	t.Helper()
	cmd := c.script(node, text)
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
	out, err := c.In(node, nil, "pkill", "-KILL", "-f", "restore --identity").CombinedOutput()
	if err != nil || !printed {
		t.Errorf("kill dr on %s: %v, %s; printed: %v", node, err, out, printed)
	}
	_ = cmd.Wait() // it was killed
}

// onAll runs a script on each node at once, and returns the outputs.
func (c controlPlane) onAll(t *testing.T, text func(node string) string) map[string]string {
	t.Helper()
	return c.on(t, allNodes, text)
}

// on runs a script on some nodes at once, and returns the outputs.
func (c controlPlane) on(t *testing.T, nodes []string, text func(node string) string) map[string]string {
	t.Helper()
	type result struct {
		node, out string
		err       error
	}
	ended := make(chan result)
	for _, node := range nodes {
		go func() {
			out, err := c.script(node, text(node)).CombinedOutput()
			ended <- result{node, string(out), err}
		}()
	}
	all := map[string]string{}
	for range nodes {
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
	for _, node := range allNodes {
		eventually(t, "the API server of "+node+" is ready", func() bool {
			_, err := c.Try("", "--server", c.APIServer(node), "get", "--raw", "/readyz")
			return err == nil
		})
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
