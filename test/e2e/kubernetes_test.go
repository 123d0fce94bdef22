package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/find/kubernetes"
	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/apiserver"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// object is one of testdata: its name in kubectl and, for some, its key in etcd.
type object struct {
	kind, name, key string
	clusterWide     bool
}

func (o object) args() []string {
	if o.clusterWide {
		return []string{o.kind, o.name}
	}
	return []string{o.kind, o.name, "-n", "shop"}
}

// shop has the objects of testdata/shop.yaml and widget.yaml, those first that the others need.
var shop = []object{
	{"Namespace", "shop", "/registry/namespaces/shop", true},
	{"CustomResourceDefinition", "widgets.example.org", "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.org", true},
	{"CustomResourceDefinition", "gadgets.example.org", "/registry/apiextensions.k8s.io/customresourcedefinitions/gadgets.example.org", true},
	{"MutatingAdmissionPolicy", "labelled", "/registry/mutatingadmissionpolicies/labelled", true},
	{"ConfigMap", "settings", "/registry/configmaps/shop/settings", false},
	{"Secret", "token", "/registry/secrets/shop/token", false},
	{"Deployment", "web", "/registry/deployments/shop/web", false},
	{"Service", "web", "/registry/services/specs/shop/web", false},
	{"Ingress", "web", "/registry/ingress/shop/web", false},
	{"HorizontalPodAutoscaler", "web", "/registry/horizontalpodautoscalers/shop/web", false},
	{"PodDisruptionBudget", "web", "/registry/poddisruptionbudgets/shop/web", false},
	{"CronJob", "clean", "/registry/cronjobs/shop/clean", false},
	{"Role", "shop:reader", "/registry/roles/shop/shop:reader", false},
	{"RoleBinding", "readers", "/registry/rolebindings/shop/readers", false},
	{"Widget", "large", "/registry/example.org/widgets/shop/large", false},
}

// alone is how many of shop are restored one by one, because the others need them.
const alone = 4

// rest has the objects of testdata/rest.yaml: many kinds, for the fields that only those have.
var rest = []object{
	{kind: "Job", name: "once"},
	{kind: "Pod", name: "alone"},
	{kind: "StatefulSet", name: "db"},
	{kind: "Service", name: "db"},
	{kind: "Service", name: "outside"},
	{kind: "DaemonSet", name: "agent"},
	{kind: "PersistentVolumeClaim", name: "data"},
	{kind: "ServiceAccount", name: "runner"},
	{kind: "NetworkPolicy", name: "closed"},
	{kind: "LimitRange", name: "small"},
	{kind: "ResourceQuota", name: "bounded"},
	{kind: "ReplicationController", name: "old"},
	{kind: "Lease", name: "leader"},
	{kind: "EndpointSlice", name: "outside-1"},
	{kind: "PodTemplate", name: "shape"},
	{kind: "PersistentVolume", name: "disk", clusterWide: true},
	{kind: "StorageClass", name: "fast", clusterWide: true},
	{kind: "VolumeAttributesClass", name: "gold", clusterWide: true},
	{kind: "CSIDriver", name: "example.org", clusterWide: true},
	{kind: "PriorityClass", name: "high", clusterWide: true},
	{kind: "RuntimeClass", name: "sandboxed", clusterWide: true},
	{kind: "IngressClass", name: "edge", clusterWide: true},
	{kind: "ValidatingWebhookConfiguration", name: "checks", clusterWide: true},
	{kind: "ValidatingAdmissionPolicy", name: "sized", clusterWide: true},
	{kind: "FlowSchema", name: "buyers", clusterWide: true},
	{kind: "DeviceClass", name: "gpu", clusterWide: true},
	{kind: "Node", name: "n1", clusterWide: true},
	{kind: "APIService", name: "v1.away.example.org", clusterWide: true},
}

// TestExtractRestoresDeletedObjects deletes objects that a live API server wrote. Each is found, extracted and
// applied with kubectl, and is then as before.
func TestExtractRestoresDeletedObjects(t *testing.T) {
	withServers(t)
	versions := []string{"3.7"}
	if soak.On() {
		versions = []string{"3.6", "3.7"}
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := servers.Start(t, servers.Options{Version: version, TLS: true})
			// Without a controller no volume would be released.
			s := apiserver.Start(t, c, "--disable-admission-plugins", "StorageObjectInUseProtection")
			j := newJob(t)
			a := j.archiving(t, c, 0)
			j.firstWindow(t, c.Client(t), a)
			makeShop(t, s)
			s.Kubectl(t, "", "create", "-f", "testdata/rest.yaml")
			before := shopNow(t, s)
			b := j.backUp(t, c)
			s.Kubectl(t, "", "delete", "-f", "testdata/rest.yaml")
			deleteShop(t, s)
			put(t, c.Client(t), "last", "")
			agent.CatchUp(t, a)
			a.Stop(t)

			for _, o := range shop {
				j.deletionIsFound(t, o)
			}
			j.applyShop(t, s, string(b.ID))
			diff := cmp.Diff(before, shopNow(t, s))
			if diff != "" {
				t.Errorf("what kubectl applied is not what it was:\n%s", diff)
			}
			j.everythingIsTaken(t, s)
		})
	}
}

func makeShop(t *testing.T, s *apiserver.APIServer) {
	t.Helper()
	s.Kubectl(t, "", "create", "-f", "testdata/shop.yaml")
	established(t, s)
	s.Kubectl(t, "", "create", "-f", "testdata/widget.yaml")
}

func established(t *testing.T, s *apiserver.APIServer) {
	t.Helper()
	s.Kubectl(t, "", "wait", "--for", "condition=established", "crd", "widgets.example.org", "gadgets.example.org")
}

// shopNow returns all of shop and rest from the API server, without the fields that it sets itself.
func shopNow(t *testing.T, s *apiserver.APIServer) map[string]any {
	t.Helper()
	now := map[string]any{}
	for _, o := range slices.Concat(shop, rest) {
		is := s.Get(t, o.args()...)
		metadata, _ := is["metadata"].(map[string]any)
		uid, _ := metadata["uid"].(string)
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"} {
			delete(metadata, field)
		}
		delete(is, "status")
		annotations, _ := metadata["annotations"].(map[string]any)
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
		now[o.kind+" "+o.name] = renamed(is, uid)
	}
	return now
}

// renamed returns a value in which a uid is replaced by that word: a Job's uid is in its labels.
func renamed(value any, uid string) any {
	switch value := value.(type) {
	case map[string]any:
		for field, within := range value {
			value[field] = renamed(within, uid)
		}
	case []any:
		for i, within := range value {
			value[i] = renamed(within, uid)
		}
	case string:
		return strings.ReplaceAll(value, uid, "uid")
	}
	return value
}

// deleteShop also does the work of a controller: it finalizes the namespace.
func deleteShop(t *testing.T, s *apiserver.APIServer) {
	t.Helper()
	s.Kubectl(t, "", "delete", "-f", "testdata/widget.yaml")
	s.Kubectl(t, "", "delete", "-f", "testdata/shop.yaml", "--wait=false")
	s.Kubectl(t, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"},"spec":{"finalizers":[]}}`,
		"replace", "--raw", "/api/v1/namespaces/shop/finalize", "-f", "-")
	for _, o := range shop {
		if o.clusterWide {
			s.Kubectl(t, "", "wait", "--for", "delete", o.kind+"/"+o.name)
		}
	}
}

// deletionIsFound checks that dr find names the object and the time of its deletion, and that the revision before leads
// to it.
func (j job) deletionIsFound(t *testing.T, o object) {
	t.Helper()
	f := j.find(t, "--key", o.key)
	last := f.Last
	if last == nil || last.Change != "delete" || last.By != "transaction" || last.Kubernetes == nil {
		t.Fatalf("find %s: %+v", o.key, f)
	}
	name := *last.Kubernetes
	if name.Name != o.name || (name.Namespace == "") != o.clusterWide || (name.Kind != o.kind && name.Kind != "") {
		t.Errorf("%s is called %v", o.key, name)
	}
	out := command.Must(t, j.env, "extract", "--before-revision", fmt.Sprint(last.Revision), "--key", o.key)
	if !strings.Contains(out, "kind: "+o.kind+"\n") || !strings.Contains(out, "name: "+o.name+"\n") {
		t.Errorf("extract %s:\n%s", o.key, out)
	}
}

// applyShop restores objects from a backup as docs/find.md describes: first those that the others need, each through a
// pipe, then the folders of the namespace, and the files of objects without one.
func (j job) applyShop(t *testing.T, s *apiserver.APIServer, id string) {
	t.Helper()
	for _, o := range shop[:alone] {
		s.Kubectl(t, command.Must(t, j.env, "extract", id, "--key", o.key), "apply", "-f", "-")
	}
	established(t, s)
	dir := filepath.Join(t.TempDir(), "found")
	command.Must(t, j.env, "extract", id, "--prefix", "/registry/", "--output-dir", dir)
	names := []string{"shop"}
	for _, o := range rest {
		if o.clusterWide {
			names = append(names, o.name+".yaml")
		}
	}
	var paths []string
	for _, name := range names {
		for _, pattern := range []string{"registry/*/" + name, "registry/*/*/" + name} {
			found, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil {
				t.Fatal(err)
			}
			paths = append(paths, found...)
		}
	}
	s.Kubectl(t, "", "apply", "-R", "-f", strings.Join(paths, ","))
}

// everythingIsTaken checks that each object that an API server has written has its own name, that kubectl apply accepts
// the whole stream, and that other keys are reported as no objects.
func (j job) everythingIsTaken(t *testing.T, s *apiserver.APIServer) {
	t.Helper()
	var r document.Extract
	var nameless []string
	items(t, command.Must(t, j.env, "extract", "-o", "json", "--prefix", "/registry/"), &r, func(e document.Extracted) {
		switch {
		case e.Object == nil:
			t.Errorf("%s is no object: %s", e.Key.Key, e.Unreadable)
		case !kubernetes.Object(e.Object).HasName():
			nameless = append(nameless, e.Key.Key)
		default:
			namedAsItself(t, e)
		}
	})
	if len(nameless) == 0 || slices.ContainsFunc(nameless, ofTheAPI) {
		t.Errorf("without a name: %v", nameless)
	}
	out := command.Must(t, j.env, "extract", "--prefix", "/registry/")
	n := strings.Count(out, "an internal object of the API server")
	if n != len(nameless) {
		t.Errorf("%d values are said to be the API server's own, want %d", n, len(nameless))
	}
	s.Kubectl(t, out, "apply", "--dry-run=server", "-f", "-")
	dir := filepath.Join(t.TempDir(), "all")
	command.Must(t, j.env, "extract", "--prefix", "/registry/", "--output-dir", dir)
	s.Kubectl(t, "", "apply", "--dry-run=server", "-R", "-f", dir)
}

// ofTheAPI reports whether a key is an object's.
func ofTheAPI(key string) bool {
	_, ok := kubernetes.Named(key)
	return ok
}

func namedAsItself(t *testing.T, e document.Extracted) {
	t.Helper()
	metadata, _ := e.Object["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	n := e.Kubernetes
	if n == nil {
		t.Errorf("%s is not named; it is %v %v", e.Key.Key, e.Object["kind"], metadata["name"])
		return
	}
	if n.Name != metadata["name"] || n.Namespace != namespace || n.Kind != "" && n.Kind != e.Object["kind"] {
		t.Errorf("%s is %v; it says %v %v/%v", e.Key.Key, *n, e.Object["kind"], namespace, metadata["name"])
	}
}

// aescbc encrypts values that are written from now on.
const aescbc = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aescbc: {keys: [{name: key1, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
  - identity: {}
`

// TestExtractNamesUnreadableObjects checks that objects which only an API server can decode are reported as such,
// and do not break the stream for kubectl.
func TestExtractNamesUnreadableObjects(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{})
	plain := apiserver.Start(t, c)
	plain.Kubectl(t, "", "create", "secret", "generic", "plain", "--from-literal=a=b")
	plain.Stop(t)
	config := filepath.Join(t.TempDir(), "encryption.yaml")
	err := os.WriteFile(config, []byte(aescbc), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := apiserver.Start(t, c, "--encryption-provider-config", config,
		"--runtime-config", "certificates.k8s.io/v1beta1=true", "--feature-gates", "ClusterTrustBundle=true,CBORServingAndStorage=true")
	s.Kubectl(t, "", "create", "secret", "generic", "sealed", "--from-literal=a=junk")
	makeShop(t, s)
	s.Kubectl(t, trustBundle(t), "create", "-f", "-")
	j := newJob(t)
	j.backUp(t, c)

	out := command.Run(t, j.env, "extract", "--prefix", "/registry/secrets/default/")
	if out.Code != 3 || !strings.Contains(out.Stderr, `encrypted by Kubernetes, with aescbc, key "key1"`) ||
		!strings.Contains(out.Stdout, "name: plain\n") || strings.Contains(out.Stdout, "k8s:enc") {
		t.Errorf("extract of an encrypted Secret: %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	got := s.Kubectl(t, out.Stdout, "apply", "-f", "-")
	if !strings.HasPrefix(got, "secret/plain ") || strings.Contains(got, "sealed") {
		t.Errorf("kubectl apply: %s", got)
	}
	one := command.Run(t, j.env, "extract", "--key", "/registry/secrets/default/sealed")
	if one.Code != 3 || !strings.HasPrefix(one.Stdout, "---\n# /registry/secrets/default/sealed") {
		t.Errorf("extract of it alone: %d, %q", one.Code, one.Stdout)
	}
	for key, why := range map[string]string{
		"/registry/clustertrustbundles/authority":  "certificates.k8s.io/v1beta1 ClusterTrustBundle",
		"/registry/example.org/widgets/shop/large": "it is CBOR",
	} {
		out := command.Run(t, j.env, "extract", "--key", key)
		out.Ended(t, 1, "cannot decode the Kubernetes object: "+why)
		if !strings.HasPrefix(out.Stdout, "---\n# ") {
			t.Errorf("extract %s: %q", key, out.Stdout)
		}
	}
}

// trustBundle returns an object of a kind without a stable version.
func trustBundle(t *testing.T) string {
	t.Helper()
	ca, err := os.ReadFile(servers.NewCertificates(t).CA)
	if err != nil {
		t.Fatal(err)
	}
	return "apiVersion: certificates.k8s.io/v1beta1\nkind: ClusterTrustBundle\nmetadata: {name: authority}\nspec:\n  trustBundle: |\n    " +
		strings.ReplaceAll(strings.TrimSpace(string(ca)), "\n", "\n    ") + "\n"
}
