package deploy

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/apiserver"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

const (
	sidecar = "../../deploy/kubernetes/examples/archive-sidecar.yaml"
	kubeadm = "../../deploy/kubernetes/examples/archive-kubeadm.yaml"
	static  = "../../deploy/kubernetes/examples/archive-static-pod.yaml"
)

// workload is the part of a StatefulSet, a DaemonSet or a static pod that runs dr archive.
type workload struct {
	account corev1.ServiceAccount
	pod     corev1.PodSpec
	archive corev1.Container
}

// readWorkload decodes a file, in which no field may be unknown.
func readWorkload(t *testing.T, path string) (w workload) {
	t.Helper()
	for _, text := range strings.Split(readFile(t, path), "\n---\n") {
		var object struct{ Kind string }
		err := yaml.Unmarshal([]byte(text), &object)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		var set appsv1.StatefulSet
		var daemons appsv1.DaemonSet
		var one corev1.Pod
		into := map[string]any{"StatefulSet": &set, "DaemonSet": &daemons, "Pod": &one, "ServiceAccount": &w.account, "Service": &corev1.Service{}}
		err = yaml.UnmarshalStrict([]byte(text), into[object.Kind])
		if err != nil {
			t.Fatalf("%s: %s: %v", path, object.Kind, err)
		}
		for _, pod := range []corev1.PodSpec{set.Spec.Template.Spec, daemons.Spec.Template.Spec, one.Spec} {
			if len(pod.Containers) > 0 {
				w.pod = pod
			}
		}
	}
	i := slices.IndexFunc(w.pod.Containers, func(c corev1.Container) bool { return c.Name == "archive" })
	if i < 0 {
		t.Fatalf("%s has no container archive", path)
	}
	w.archive = w.pod.Containers[i]
	return w
}

// TestArchiveManifestsHaveFewRights checks that dr archive can neither use the API server nor write the member's disk or its own.
func TestArchiveManifestsHaveFewRights(t *testing.T) {
	for _, path := range []string{sidecar, kubeadm, static} {
		w := readWorkload(t, path)
		for _, mounted := range []*bool{w.account.AutomountServiceAccountToken, w.pod.AutomountServiceAccountToken} {
			if path != static && (mounted == nil || *mounted) { // static pods have no service account
				t.Errorf("%s: the token of the service account is mounted", path)
			}
		}
		if (w.account.Name == "") != (path == static) || w.pod.ServiceAccountName != w.account.Name {
			t.Errorf("%s: the service account is %q, want %q", path, w.pod.ServiceAccountName, w.account.Name)
		}
		own := w.archive.SecurityContext
		if own.ReadOnlyRootFilesystem == nil || !*own.ReadOnlyRootFilesystem {
			t.Errorf("%s: the root file system is writable", path)
		}
		for _, m := range w.archive.VolumeMounts {
			if !m.ReadOnly {
				t.Errorf("%s: %s is writable", path, m.MountPath)
			}
		}
		if w.archive.LivenessProbe != nil || w.archive.ReadinessProbe != nil {
			t.Errorf("%s: a store that does not answer would affect the member", path)
		}
	}
	for _, path := range []string{kubeadm, static} {
		for _, v := range readWorkload(t, path).pod.Volumes {
			if v.HostPath != nil && *v.HostPath.Type != corev1.HostPathFile && !slices.Contains([]string{"/var/lib/etcd", "/etc/etcd-dr/store"}, v.HostPath.Path) {
				t.Errorf("%s: the folder %s of the node is mounted", path, v.HostPath.Path)
			}
		}
	}
}

// TestArchiveManifestsStartExistingVerbs checks that dr has the commands in the manifests, and that they are settings with which it
// archives the log of a real member.
func TestArchiveManifestsStartExistingVerbs(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the binary")
	}
	etcd := servers.Start(t, servers.Options{Version: "3.6", TLS: true})
	values := map[string]string{
		"--repo": "file://" + t.TempDir(), "--data-dir": etcd.Members[0].DataDir, "--endpoints": etcd.Endpoints()[0],
		"--cacert": etcd.Certificates.CA, "--cert": etcd.Certificates.Cert, "--key": etcd.Certificates.Key,
	}
	for _, path := range []string{sidecar, kubeadm, static} {
		args := readWorkload(t, path).archive.Args
		dr().knows(t, filepath.Base(path), "dr "+strings.Join(args, " "))
		args = slices.DeleteFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--credentials=") }) // a directory has none
		for i, arg := range args {
			name, _, _ := strings.Cut(arg, "=")
			value, replaced := values[name]
			if replaced {
				args[i] = name + "=" + value
			}
		}
		a := agent.Run(t, nil, args...)
		a.Until(t, "it works", func(s document.Agent) bool { return s.State == document.AgentWorking && s.Based })
		a.Stop(t)
	}
}

// TestArchiveManifestsAreAccepted applies the manifests to a real API server, which also checks them against the standard "restricted" for
// pods. On control-plane nodes only the member's files on the node, and root, who owns them, break it.
func TestArchiveManifestsAreAccepted(t *testing.T) {
	if testing.Short() {
		t.Skip("needs an API server")
	}
	api := apiserver.Start(t, servers.Start(t, servers.Options{Version: "3.6"}))
	namespaces := map[string]string{"payments": sidecar, "etcd-dr-archive": kubeadm}
	for namespace, path := range namespaces {
		api.Kubectl(t, "", "create", "namespace", namespace)
		api.Kubectl(t, "", "label", "namespace", namespace, "pod-security.kubernetes.io/warn=restricted")
		out := api.Try(t, "", "apply", "--dry-run=server", "--validate=strict", "-f", path, "-o", "json")
		if !out.OK {
			t.Errorf("%s: %s", path, out.Stderr)
			continue
		}
		var applied struct {
			Items []struct{ Metadata struct{ Namespace string } }
		}
		err := json.Unmarshal([]byte(out.Stdout), &applied)
		if err != nil || len(applied.Items) < 2 {
			t.Fatalf("%s: %v: %s", path, err, out.Stdout)
		}
		for _, item := range applied.Items {
			if item.Metadata.Namespace != namespace {
				t.Errorf("%s: an object is in namespace %s", path, item.Metadata.Namespace)
			}
		}
		warned := violation.FindAllString(out.Stderr, -1)
		want := []string(nil)
		if path == kubeadm {
			want = []string{"restricted volume types (", "runAsNonRoot != true (", "runAsUser=0 ("}
		}
		if !slices.Equal(warned, want) {
			t.Errorf("%s: the standard is broken by %q, want %q:\n%s", path, warned, want, out.Stderr)
		}
	}
}

// violation is a rule in a warning of the pod security admission.
var violation = regexp.MustCompile(`(restricted volume types|hostPath volumes|runAs\w+ ?!?= ?\w+|allowPrivilegeEscalation != false|unrestricted capabilities|seccompProfile|host \w+) \(`)

// manifest matches an object in a page: in a block of YAML, or for kubectl apply.
var manifest = regexp.MustCompile("(?sm)^```yaml\n(apiVersion:.*?)^```|^ *kubectl apply -f - <<'END'\n(.*?)^ *END$")

// startWithDefinitions starts an API server with dr's custom resources, and creates namespaces.
func startWithDefinitions(t *testing.T, namespaces ...string) *apiserver.APIServer {
	t.Helper()
	api := apiserver.Start(t, servers.Start(t, servers.Options{Version: "3.6"}))
	api.Kubectl(t, "", "apply", "--server-side", "-f", "../../deploy/kubernetes/crds")
	api.Kubectl(t, "", "wait", "--for=condition=Established", "crd/etcdbackups.etcd-dr.io", "crd/etcdrestores.etcd-dr.io", "--timeout=60s")
	for _, namespace := range namespaces {
		api.Kubectl(t, "", "create", "namespace", namespace)
	}
	return api
}

// TestManifestsOfTheDocsAreAccepted applies the manifests in docs/kubernetes.md and in the runbooks to a real API server.
func TestManifestsOfTheDocsAreAccepted(t *testing.T) {
	if testing.Short() {
		t.Skip("needs an API server")
	}
	api := startWithDefinitions(t, "payments", "staging")
	files, err := filepath.Glob(filepath.Join(runbooks, "kubernetes", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range append(files, "../../docs/kubernetes.md") {
		for _, m := range manifest.FindAllStringSubmatch(readFile(t, file), -1) {
			found++
			out := api.Try(t, m[1]+m[2], "apply", "--dry-run=server", "--validate=strict", "-f", "-")
			if !out.OK {
				t.Errorf("%s: %s\n%s", file, out.Stderr, m[1]+m[2])
			}
		}
	}
	if found < 6 {
		t.Errorf("only %d manifests were found", found)
	}
}

// TestConvertedManifestsAreAccepted applies the manifests of coreos' operator, and what dr convert prints for those of all other operators, to a
// real API server.
func TestConvertedManifestsAreAccepted(t *testing.T) {
	if testing.Short() {
		t.Skip("needs an API server")
	}
	api := startWithDefinitions(t, "payments", "lab")
	files, err := filepath.Glob("../../api/foreign/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		args := []string{"convert", "-f", file}
		if strings.HasSuffix(file, "gone.yaml") {
			args = append(args, "--gone")
		}
		api.Kubectl(t, command.Must(t, nil, args...), "apply", "--dry-run=server", "--validate=strict", "-f", "-")
	}
	api.Kubectl(t, "", "apply", "--server-side", "-f", "../../deploy/coreos/crds")
	api.Kubectl(t, "", "wait", "--for=condition=Established", "--timeout=60s", "-f", "../../deploy/coreos/crds")
	for _, name := range []string{"once", "restore"} {
		api.Kubectl(t, readFile(t, "../../api/foreign/testdata/"+name+".yaml"), "apply", "--dry-run=server", "--validate=strict", "-f", "-")
	}
}
