package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	client "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/apiserver"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// TestCachesFollowTwoRestores checks that clients that cache by resourceVersion have the cluster's state after it was
// restored twice, the second time to before the first restore. Neither they nor the controllers are restarted; the API
// server is restarted the first time and not the second.
func TestCachesFollowTwoRestores(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{})
	s := apiserver.Start(t, c)
	s.StartControllers(t)
	j := newJob(t)
	j.watches = true
	a := j.archiving(t, c, 0)
	j.firstWindow(t, c.Client(t), a)
	caches := startCaches(t, s)

	s.Kubectl(t, objects("kept", "changed", "deleted"), "create", "-f", "-")
	first := newest(t, c.Client(t))
	s.Kubectl(t, objects("new"), "create", "-f", "-")
	changeObjects(t, s, "changed", "once")
	second := newest(t, c.Client(t))
	s.Kubectl(t, objects("deleted"), "delete", "-f", "-", "--grace-period=0", "--force")
	s.Kubectl(t, objects("newest"), "create", "-f", "-")
	changeObjects(t, s, "changed", "twice")
	caches.follow(t, c)
	agent.CatchUp(t, a)

	s.Kill(t)
	c = j.restoredInPlace(t, c, second)
	s.Restart(t)
	caches.follow(t, c)
	s.Kubectl(t, objects("new"), "delete", "-f", "-", "--grace-period=0", "--force")
	s.Kubectl(t, objects("of-the-second-history"), "create", "-f", "-")
	changeObjects(t, s, "changed", "in the second history")
	changeObjects(t, s, "kept", "in the second history")
	caches.follow(t, c)
	agent.CatchUp(t, a)

	c = j.restoredInPlace(t, c, first)
	caches.follow(t, c)
	s.Kubectl(t, objects("of-the-third-history"), "create", "-f", "-")
	changeObjects(t, s, "changed", "in the third history")
	s.Kubectl(t, "", "create", "deployment", "web", "--image", "registry.example.org/web")
	eventually(t, "the controllers make the Deployment's pod", func() bool {
		return s.Kubectl(t, "", "get", "pods", "-l", "app=web", "-o", "name") != ""
	})
	caches.follow(t, c)
}

// restoredInPlace kills a cluster of one member and boots the result of dr restore at a revision, at the same
// addresses.
func (j job) restoredInPlace(t *testing.T, c *servers.Cluster, revision int64) *servers.Cluster {
	t.Helper()
	c.Kill(t, 0)
	m := c.Members[0]
	dir := filepath.Join(t.TempDir(), m.Name)
	command.Must(t, j.env, "restore", "--name", m.Name, "--data-dir", dir, "--to-revision", fmt.Sprint(revision))
	return servers.Boot(t, servers.Options{}, servers.Existing{Name: m.Name, DataDir: dir, PeerURL: m.PeerURL, ClientURL: m.ClientURL})
}

// objects returns a ConfigMap and a Pod on the node n1 for each name, as YAML.
func objects(names ...string) (yaml string) {
	for _, name := range names {
		yaml += fmt.Sprintf(`---
apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s}
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec: {nodeName: n1, containers: [{name: web, image: registry.example.org/web}]}
`, name)
	}
	return yaml
}

func changeObjects(t *testing.T, s *apiserver.APIServer, name, value string) {
	t.Helper()
	s.Kubectl(t, "", "annotate", "--overwrite", "configmap/"+name, "pod/"+name, "changed="+value)
}

// clientCache is one client's copy of a resource, by list and watch.
type clientCache struct {
	resource string // its last element in etcd's keys too
	selector fields.Selector
	list     func() []any
}

type clientCaches struct {
	core client.Interface
	all  []clientCache
}

// startCaches starts client-go's shared informers, and Reflectors as the kubelet has one for its pods. They run until
// the test ends.
func startCaches(t *testing.T, s *apiserver.APIServer) clientCaches {
	t.Helper()
	c := clientCaches{core: coreClient(t, s)}
	everything, ofNode := fields.Everything(), fields.OneTermEqualSelector("spec.nodeName", "n1")
	c.all = []clientCache{
		c.informer(t, "configmaps", everything, &corev1.ConfigMap{}),
		c.informer(t, "pods", everything, &corev1.Pod{}),
		c.kubelet(t, ofNode, func(lw *cache.ListWatch) cache.ListerWatcher { return lw }),
		c.kubelet(t, ofNode, func(lw *cache.ListWatch) cache.ListerWatcher { return listFirst{lw} }),
	}
	return c
}

// listFirst lists and then watches, like clients that do not support watches that begin with a list.
type listFirst struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is called by Reflector.
func (listFirst) IsWatchListSemanticsUnSupported() bool { return true }

func (c clientCaches) informer(t *testing.T, resource string, selector fields.Selector, kind runtime.Object) clientCache {
	t.Helper()
	lw := cache.NewListWatchFromClient(c.core, resource, metav1.NamespaceAll, selector)
	informer := cache.NewSharedInformer(lw, kind, 0)
	go informer.RunWithContext(t.Context())
	return clientCache{resource, selector, informer.GetStore().List}
}

// kubelet follows the pods of a node as the kubelet does: each change delivers all of them.
func (c clientCaches) kubelet(t *testing.T, node fields.Selector, with func(*cache.ListWatch) cache.ListerWatcher) clientCache {
	t.Helper()
	var pods atomic.Pointer[[]any]
	pods.Store(&[]any{})
	store := cache.NewUndeltaStore(func(all []any) { pods.Store(&all) }, cache.MetaNamespaceKeyFunc)
	lw := with(cache.NewListWatchFromClient(c.core, "pods", metav1.NamespaceAll, node))
	go cache.NewReflector(lw, &corev1.Pod{}, store, 0).RunWithContext(t.Context())
	return clientCache{"pods", node, func() []any { return *pods.Load() }}
}

// coreClient returns a client of Kubernetes' core objects.
func coreClient(t *testing.T, s *apiserver.APIServer) client.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	err = corev1.AddToScheme(scheme)
	if err != nil {
		t.Fatal(err)
	}
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	core, err := client.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return core
}

// follow waits until every cache equals the cluster.
func (c clientCaches) follow(t *testing.T, etcd *servers.Cluster) {
	t.Helper()
	client := etcd.Client(t)
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		wrong := c.differences(t.Context(), client)
		if wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("caches do not hold what the cluster holds:\n%s", wrong)
		}
	}
}

// differences compares each cache with a consistent list, and that with etcd: an API server answers it from its own
// cache.
func (c clientCaches) differences(ctx context.Context, etcd *clientv3.Client) (all string) {
	for _, held := range c.all {
		fresh, err := c.fresh(ctx, held)
		if err != nil {
			return err.Error()
		}
		stored, err := revisionsOf(ctx, etcd, held.resource)
		if err != nil {
			return err.Error()
		}
		diff := cmp.Diff(fresh, contents(held.list()))
		if diff != "" {
			all += fmt.Sprintf("cache of %s with selector %q: fresh list first, cache second:\n%s", held.resource, held.selector, diff)
		}
		diff = cmp.Diff(stored, resourceVersions(fresh))
		if held.selector.Empty() && diff != "" {
			all += fmt.Sprintf("%s: etcd first, the API server second:\n%s", held.resource, diff)
		}
	}
	return all
}

// fresh returns the expected content of the cache: without a resourceVersion, the API server answers with the newest
// state.
func (c clientCaches) fresh(ctx context.Context, held clientCache) (map[string]string, error) {
	list, err := c.core.Get().Resource(held.resource).
		VersionedParams(&metav1.ListOptions{FieldSelector: held.selector.String()}, metav1.ParameterCodec).Do(ctx).Get()
	if err != nil {
		return nil, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	var objects []any
	for _, item := range items {
		objects = append(objects, item)
	}
	return contents(objects), nil
}

// contents returns objects as JSON by namespace and name.
func contents(objects []any) map[string]string {
	all := map[string]string{}
	for _, object := range objects {
		o := object.(metav1.Object)
		text, err := json.Marshal(object)
		if err != nil {
			panic(err) // it was decoded before
		}
		all[o.GetNamespace()+"/"+o.GetName()] = string(text)
	}
	return all
}

// resourceVersions returns those of objects in the format of contents.
func resourceVersions(contents map[string]string) map[string]string {
	versions := map[string]string{}
	for name, text := range contents {
		var object metav1.PartialObjectMetadata
		err := json.Unmarshal([]byte(text), &object)
		if err != nil {
			panic(err) // it was encoded here
		}
		versions[name] = object.ResourceVersion
	}
	return versions
}

// revisionsOf returns the keys below a resource without its prefix, and the revisions that changed them last.
func revisionsOf(ctx context.Context, client *clientv3.Client, resource string) (map[string]string, error) {
	prefix := "/registry/" + resource + "/"
	response, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	revisions := map[string]string{}
	for _, kv := range response.Kvs {
		revisions[string(kv.Key[len(prefix):])] = fmt.Sprint(kv.ModRevision)
	}
	return revisions, nil
}
