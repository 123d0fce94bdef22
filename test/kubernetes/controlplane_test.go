package kubernetes

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/cluster"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/soak"
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

// TestControlPlane follows docs/control-planes.md: it rebuilds all nodes from the bucket alone. Then it loses etcd on all nodes, and restores it
// to a moment by one command on each: clients, kubelets and pods go on, and so do the agents.
func TestControlPlane(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a Kubernetes")
	}
	newControlPlane(t).restoreAll(t)
}

// TestSoakControlPlaneFromTheTrap begins like TestControlPlane. It restores again at once, on a node later than on the others, and takes that
// back. Then a kubelet starts an empty cluster before anybody restores, and at last a member is replaced.
func TestSoakControlPlaneFromTheTrap(t *testing.T) {
	soak.Only(t, "takes ten minutes")
	c := newControlPlane(t)
	all := c.restoreAll(t)
	c.restoreAndBack(t, all)
	c.restoreFromTheTrap(t, c.blocks(t, "Restore etcd")[2])
	all.wantFollowed(t)
	c.replaceMember(t, "n1", "n3")
}

// restoreAll does what TestControlPlane describes. It returns the clients.
func (c controlPlane) restoreAll(t *testing.T) clients {
	t.Helper()
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

	all := c.restoreUnderClients(t, c.blocks(t, "Restore etcd")[2])
	c.wantMembers(t)
	return all
}

// restoreAndBack restores again, on a node later than on the others, and takes that back.
func (c controlPlane) restoreAndBack(t *testing.T, all clients) {
	t.Helper()
	c.plan(t, c.archived(t, "second"))

	c.Kubectl(t, "", "create", "configmap", "later")
	results := c.restoreWithout(t, "n3", c.blocks(t, "Restore etcd")[2])
	c.wantConfigMaps(t, "after", "before", "second")
	c.wantMembers(t)
	all.wantFollowed(t)
	c.onAll(t, func(node string) string {
		_, line, _ := strings.Cut(results[node], "to go back")
		line, _, _ = strings.Cut(line, ", which loses")
		_, line, _ = strings.Cut(line, "dr ")
		return "dr " + line
	})
	c.wantConfigMaps(t, "after", "before", "later", "second")
	all.wantFollowed(t)
}

// restoreUnderClients loses etcd on all nodes, and restores the moment before a mistake. The clients of the API server follow, and no kubelet
// and no pod of a Deployment is started again.
func (c controlPlane) restoreUnderClients(t *testing.T, restore string) clients {
	t.Helper()
	all := c.startClients(t)
	revision := c.archived(t, "after")
	want, running := all.list(t), all.running(t)
	c.Kubectl(t, "", "create", "configmap", "mistake")
	all.makeMistakes(t)
	all.wantFollowed(t)
	c.wantSameKeys(t, strings.Replace(restore, "--confirm kubeadm", "--dry-run", 1))

	fence := c.blocks(t, "Restore etcd")[0]
	c.onAll(t, func(string) string { return fence })
	c.loseEtcd(t)
	c.plan(t, revision)
	c.onAll(t, func(string) string { return restore })
	c.wantConfigMaps(t, "after", "before")
	got := all.list(t)
	if !maps.Equal(got, want) {
		t.Errorf("there are %d objects, want %d", len(got), len(want))
	}
	all.wantFollowed(t)
	c.Kubectl(t, "", "-n", "bulk", "scale", "deployment/web", "--replicas", "4")
	c.Kubectl(t, "", "-n", "bulk", "rollout", "status", "deployment/web", "--timeout", patience.String())
	after := all.running(t)
	for line := range strings.Lines(running) {
		if !strings.Contains(after, line) {
			t.Errorf("%s was started again:\n%s", line, after)
		}
	}
	return all
}

// restoreFromTheTrap loses etcd on all nodes, whose kubelets start it again, and does nothing. The member of kubeadm init begins an
// empty cluster. The command restores the right history nevertheless, although it is killed in each phase on each node.
func (c controlPlane) restoreFromTheTrap(t *testing.T, restore string) {
	t.Helper()
	c.plan(t, c.archived(t, "trap"))
	c.loseEtcd(t)
	c.onAll(t, func(string) string { return "pkill -KILL -x etcd" })
	eventually(t, "n1 serves another cluster", func() bool {
		found, err := c.Etcdctl("n1", "get", "--keys-only", "/registry/configmaps/default/before").Output()
		return err == nil && len(found) == 0
	})
	c.killInEachPhase(t, restore)
	c.wantConfigMaps(t, "after", "before", "later", "second", "trap")
	c.wantMembers(t)
	c.wantStaticAgent(t, "n3")
}

// replaceMember loses the disk of a member while the others serve, and follows the section Replace one member, from a node that works.
func (c controlPlane) replaceMember(t *testing.T, from, lost string) {
	t.Helper()
	lose(t, c.Disk(lost, "/var/lib/etcd"))
	c.do(t, lost, "pkill -KILL -x etcd")
	steps := c.blocks(t, "Replace one member")
	list := c.output(t, from, strings.ReplaceAll(steps[0], "NODE", from))
	line := regexp.MustCompile(`(?m)^([0-9a-f]+), started, ` + lost + `,`).FindStringSubmatch(list)
	if line == nil {
		t.Fatalf("%s is no member: %s", lost, list)
	}
	c.do(t, from, strings.NewReplacer("NODE", from, "remove ID", "remove "+line[1], "LOST", lost).Replace(steps[1]))
	join := strings.TrimSpace(c.output(t, from, steps[2]))
	c.do(t, lost, "systemctl stop kubelet; kubeadm reset --force")
	encryption := "/etc/kubernetes/pki/encryption.yaml"
	must(t, exec.Command("install", "-D", c.Disk(from, encryption), c.Disk(lost, encryption)))
	c.do(t, lost, "systemctl start kubelet; "+join+" --ignore-preflight-errors=all") // there is neither systemd nor a registry
	c.wantMembers(t)
	c.wantConfigMaps(t, "after", "before", "later", "second", "trap")
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
	c.env = append(store.Env(), "DR_REPO="+url, "DR_CLUSTER=prod.kubernetes", "HOME="+c.dir,
		"ETCDCTL_DIAL_TIMEOUT=1m", "ETCDCTL_COMMAND_TIMEOUT=1m") // for a busy host
	recipient := command.Keygen(t, filepath.Join(c.dir, "key.txt"))
	c.own = strings.NewReplacer(
		"AWS_ACCESS_KEY_ID=…", "AWS_ACCESS_KEY_ID="+store.AccessKey, "AWS_SECRET_ACCESS_KEY=…", "AWS_SECRET_ACCESS_KEY="+store.SecretKey,
		"registry.example.com/etcd-dr:v1.0.0", c.LoadDR(t), "s3://backups/etcd?region=eu-central-1", url, exampleRecipient, recipient)
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
	cmd := c.In(node, c.env, withDR(c.Systemctl(node)+text)...)
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

// output runs a script on a node, and returns its standard output.
func (c controlPlane) output(t *testing.T, node, text string) string {
	t.Helper()
	cmd := c.script(node, text)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("on %s: %s: %v\n%s", node, text, err, &failure)
	}
	return string(out)
}

// backUp follows the section Back up.
func (c controlPlane) backUp(t *testing.T) {
	t.Helper()
	parts := c.blocks(t, "Back up")
	for _, part := range parts[:len(parts)-1] {
		c.do(t, "n1", part)
	}
	c.startStaticAgent(t, "n3")
	c.onAll(t, func(string) string { return parts[len(parts)-1] })
}

// startStaticAgent runs an agent as a static pod too. It stands by.
func (c controlPlane) startStaticAgent(t *testing.T, node string) {
	t.Helper()
	manifest, err := os.ReadFile("../../deploy/kubernetes/examples/archive-static-pod.yaml")
	if err == nil {
		err = os.WriteFile(filepath.Join(c.dir, "archive.yaml"), []byte(c.own.Replace(string(manifest))), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.do(t, node, `install -d -m 0700 /etc/etcd-dr/store
		for name in AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY; do printf %s "${!name}" >"/etc/etcd-dr/store/$name"; done
		install -m 0600 archive.yaml /etc/kubernetes/manifests/archive.yaml`)
}

// wantStaticAgent waits until the agent of startStaticAgent works or stands by.
func (c controlPlane) wantStaticAgent(t *testing.T, node string) {
	t.Helper()
	var status document.Agent
	eventually(t, "the static pod of the agent works or stands by", func() bool {
		out, err := c.In(node, nil, "curl", "-sf", "http://127.0.0.1:2390/status").Output()
		return err == nil && json.Unmarshal(out, &status) == nil && (status.State == document.AgentWorking || status.State == document.AgentStandby)
	})
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
	make := strings.Replace(c.blocks(t, "Restore etcd")[1], "--plan-out", "--to-revision "+revision+" --plan-out", 1)
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
		c.do(t, node, "systemctl stop kubelet")
		remove(c.Disk(node, "/var/lib/etcd"))
		remove(c.Disk(node, "/var/lib/kubelet/*.yaml"))
		remove(c.Disk(node, "/var/lib/kubelet/*.env"))
		remove(c.Disk(node, "/var/lib/kubelet/pki"))
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
			c.endRestores() // the others would wait for this one
		}
		all[r.node] = r.out
	}
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// endRestores kills the restores on all nodes.
func (c controlPlane) endRestores() {
	for _, node := range allNodes {
		_ = c.In(node, nil, "pkill", "-KILL", "-f", "restore --identity").Run() // there may be none
	}
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
