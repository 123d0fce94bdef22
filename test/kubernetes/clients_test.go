package kubernetes

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// objects is how many ConfigMaps are in the namespace bulk: more than a client lists at once, which is 500.
const objects = 700

// clients are clients of a control plane: those that follow the ConfigMaps of the namespace bulk, and a Deployment there.
type clients struct {
	controlPlane
	configMaps dynamic.ResourceInterface
	informer   cache.SharedIndexInformer
	kubectl    *watched
}

// startClients creates the objects and begins to follow them.
func (c controlPlane) startClients(t *testing.T) clients {
	t.Helper()
	c.Kubectl(t, "", "create", "namespace", "bulk")
	c.Kubectl(t, "", "-n", "bulk", "create", "deployment", "web", "--image", "etcd-dr.test/pause:1", "--replicas", "2")
	client := c.Client(t, c.Disk("n1", "/etc/kubernetes/admin.conf"))
	kind := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	all := clients{
		c, client.Resource(kind).Namespace("bulk"), dynamicinformer.NewFilteredDynamicInformer(client, kind, "bulk", 0, nil, nil).Informer(), c.watchByKubectl(t),
	}
	all.change(t, 0, objects, func(ctx context.Context, o *unstructured.Unstructured) error {
		_, err := all.configMaps.Create(ctx, o, metav1.CreateOptions{})
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	var informing sync.WaitGroup
	informing.Go(func() { all.informer.RunWithContext(ctx) })
	t.Cleanup(func() {
		cancel()
		informing.Wait()
	})
	c.Kubectl(t, "", "-n", "bulk", "rollout", "status", "deployment/web", "--timeout", patience.String())
	return all
}

// change calls do with the ConfigMaps from one number to another, sixteen at the same time.
func (c clients) change(t *testing.T, from, to int, do func(context.Context, *unstructured.Unstructured) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for i := range to - from {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"number": fmt.Sprint(from + i)}}}
		o.SetName(fmt.Sprintf("object-%04d", from+i))
		group.Go(func() error { return do(ctx, o) })
	}
	err := group.Wait()
	if err != nil {
		t.Fatal(err)
	}
}

// makeMistakes deletes some of the objects, changes others, and creates new ones.
func (c clients) makeMistakes(t *testing.T) {
	t.Helper()
	c.change(t, 0, 200, func(ctx context.Context, o *unstructured.Unstructured) error {
		return c.configMaps.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
	})
	c.change(t, 200, 500, func(ctx context.Context, o *unstructured.Unstructured) error {
		o.SetLabels(map[string]string{"by": "mistake"})
		_, err := c.configMaps.Update(ctx, o, metav1.UpdateOptions{})
		return err
	})
	c.change(t, objects, objects+100, func(ctx context.Context, o *unstructured.Unstructured) error {
		_, err := c.configMaps.Create(ctx, o, metav1.CreateOptions{})
		return err
	})
}

// list returns the versions and the contents of the objects, by name.
func (c clients) list(t *testing.T) map[string]string {
	t.Helper()
	all, err := c.configMaps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, o := range all.Items {
		found[o.GetName()] = o.GetResourceVersion() + fmt.Sprint(o.Object)
	}
	return found
}

// wantFollowed waits until all that follow the objects have the same as a fresh list.
func (c clients) wantFollowed(t *testing.T) {
	t.Helper()
	var known, watched, fresh map[string]string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("a list has %d objects, the informer %d, and kubectl get --watch %d; differences: %q", len(fresh), len(known), len(watched), differences(fresh, known, watched))
		}
	})
	eventually(t, "the informer and kubectl get --watch are up to date", func() bool {
		fresh, watched, known = c.list(t), c.kubectl.now(), map[string]string{}
		for _, o := range c.informer.GetStore().List() {
			one := o.(*unstructured.Unstructured)
			known[one.GetName()] = one.GetResourceVersion() + fmt.Sprint(one.Object)
		}
		return len(differences(fresh, known, watched)) == 0
	})
}

// differences returns the names of objects that are not the same in all maps. watched has only their versions.
func differences(fresh, known, watched map[string]string) (names []string) {
	all := maps.Clone(fresh)
	maps.Copy(all, known)
	maps.Copy(all, watched)
	for name := range all {
		if fresh[name] != known[name] || !strings.HasPrefix(fresh[name], watched[name]) || watched[name] == "" {
			names = append(names, name)
		}
	}
	return names
}

// watched is what kubectl get --watch has printed: the versions of objects, by name.
type watched struct {
	mu       sync.Mutex
	versions map[string]string
}

func (w *watched) now() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.versions)
}

// read reads a line. "again" means that kubectl was started again, and lists all objects.
func (w *watched) read(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fields := strings.Fields(line)
	switch {
	case line == "again":
		w.versions = map[string]string{}
	case len(fields) < 3:
	case fields[0] == "DELETED":
		delete(w.versions, fields[1])
	default:
		w.versions[fields[1]] = fields[2]
	}
}

// watchByKubectl runs kubectl get --watch, again and again, as it ends with the connection.
func (c controlPlane) watchByKubectl(t *testing.T) *watched {
	t.Helper()
	const line = `{{.metadata.name}} {{.metadata.resourceVersion}}{{"\n"}}`
	const events = `{{if .object.items}}{{range .object.items}}ADDED ` + line + `{{end}}{{else}}{{.type}} {{with .object}}` + line + `{{end}}{{end}}`
	const script = `while :; do
		echo again
		kubectl -n bulk get configmaps --watch --output-watch-events --output go-template='` + events + `' || sleep 1
	done`
	cmd := c.Command([]string{"HOME=" + t.TempDir()}, "bash", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // kubectl is a child
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{versions: map[string]string{}}
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.read(lines.Text())
		}
	})
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		reading.Wait()
		_ = cmd.Wait()
	})
	return w
}

// running describes everything that must run on while etcd is restored: the kubelets, and the containers of the Deployment.
func (c clients) running(t *testing.T) string {
	t.Helper()
	all := c.Kubectl(t, "", "-n", "bulk", "get", "pods", "-l", "app=web", "-o",
		`jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[*].containerID} {.status.containerStatuses[*].restartCount}{"\n"}{end}`)
	for _, node := range allNodes {
		pid, err := c.In(node, nil, "pgrep", "-x", "kubelet").Output()
		if err != nil {
			t.Fatalf("kubelet of %s: %v", node, err)
		}
		all += node + " " + string(pid)
	}
	return all
}

// loseEtcd removes the data of etcd from all nodes.
func (c controlPlane) loseEtcd(t *testing.T) {
	t.Helper()
	for _, node := range allNodes {
		lose(t, c.Disk(node, "/var/lib/etcd"))
	}
}

// phases are the words with which dr begins the phases of a restore on a node.
var phases = []string{
	"building the new data", "stopping all members", "moving the old data aside", "moving the new data into its place", "starting all members",
	"comparing the members",
}

// killInEachPhase runs a script with dr on all nodes until it succeeds there, and kills dr once in each phase. Some are too short for that.
func (c controlPlane) killInEachPhase(t *testing.T, text string) {
	t.Helper()
	var running errgroup.Group
	for _, node := range allNodes {
		running.Go(func() error {
			left := slices.Clone(phases)
			for {
				at, output, err := c.killAtOneOf(node, text, left)
				t.Logf("on %s, killed at %q:\n%s", node, at, output)
				if at == "" && strings.Contains(output, "has restored") { // the kill came after the end
					err = nil
				}
				if at == "" && err != nil {
					c.endRestores() // the others would wait for this one
				}
				if at == "" {
					return cmp.Or(err, checkKilled(node, left))
				}
				left = slices.DeleteFunc(left, func(phase string) bool { return phase == at })
			}
		})
	}
	err := running.Wait()
	if err != nil {
		t.Fatal(err)
	}
}

// checkKilled returns an error if dr was not killed in a phase that takes a while.
func checkKilled(node string, left []string) error {
	for _, phase := range []string{phases[0], phases[1], phases[4]} {
		if slices.Contains(left, phase) {
			return fmt.Errorf("on %s dr was not killed at %q", node, phase)
		}
	}
	return nil
}

// killAtOneOf runs a script with dr on a node, and kills dr when it begins one of some phases. It returns that phase; "" if the script ended.
func (c controlPlane) killAtOneOf(node, text string, left []string) (at, output string, err error) {
	cmd := c.script(node, text)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", "", err
	}
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		output += lines.Text() + "\n"
		i := slices.IndexFunc(left, func(phase string) bool { return strings.Contains(lines.Text(), phase) })
		if at != "" || i < 0 {
			continue
		}
		err = c.In(node, nil, "pkill", "-KILL", "-f", "restore --identity").Run()
		if err == nil {
			at = left[i]
		}
	}
	return at, output, cmd.Wait()
}
