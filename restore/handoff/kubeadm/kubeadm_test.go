package kubeadm_test

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	taken "github.com/etcd-dr/etcd-dr/backup/assets"
	restored "github.com/etcd-dr/etcd-dr/restore/assets"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubeadm"
	"github.com/etcd-dr/etcd-dr/restore/handoff/node"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// host is a host with the manifests of a control plane. No kubelet reads them.
type host struct {
	*kubeadm.Pods
	t      *testing.T
	folder string
}

const (
	etcdManifest = `
spec:
  securityContext: {runAsUser: 7, runAsGroup: 8}
  containers:
    - command: [etcd, --name=n1, --data-dir=/data/etcd, --listen-client-urls=https://127.0.0.1:2379,
        --initial-advertise-peer-urls=https://10.0.0.1:2380, --initial-cluster=n1=https://10.0.0.1:2380,
        --trusted-ca-file=/pki/etcd/ca.crt, --cert-file=/pki/etcd/server.crt, --key-file=/other/server.key]
      env: [{name: ETCD_LISTEN_METRICS_URLS, value: "PROBE"}, {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
      volumeMounts: [{name: data, mountPath: /data}, {name: pki, mountPath: /pki}, {name: more, mountPath: /pki/etcd, subPath: sub}]
  volumes:
    - {name: data, hostPath: {path: /var/lib}}
    - {name: pki, hostPath: {path: /etc/pki}}
    - {name: more, hostPath: {path: /etc/more}}
`
	variablesManifest = `
spec:
  containers:
    - command: [etcd]
      workingDir: /data
      env: [{name: ETCD_NAME, value: n1}, {name: ETCD_DATA_DIR, value: etcd}, {name: ETCD_WAL_DIR, value: /data/wal}, {name: OTHER, value: etcd.conf.yaml}]
      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, hostPath: {path: FOLDER}}]
`
	serverManifest = `
spec:
  containers:
    - command: [kube-apiserver, --client-ca-file=/pki/ca.crt]
      livenessProbe: {httpGet: {host: HOST, port: PORT, path: /livez, scheme: HTTPS}}
      volumeMounts: [{name: pki, mountPath: /pki}]
  volumes: [{name: pki, hostPath: {path: FOLDER}}]
`
)

func newHost(t *testing.T, metrics, server string) host {
	t.Helper()
	folder := t.TempDir()
	h := host{&kubeadm.Pods{Manifests: filepath.Join(folder, "manifests")}, t, folder}
	address, port, _ := strings.Cut(strings.TrimPrefix(server, "https://"), ":")
	h.write("manifests/etcd.yaml", strings.ReplaceAll(etcdManifest, "PROBE", metrics))
	h.write("manifests/kube-apiserver.yaml", strings.NewReplacer("HOST", address, "PORT", port, "FOLDER", folder).Replace(serverManifest))
	h.write("manifests/kube-scheduler.yaml", "{}")
	h.write("manifests/kube-controller-manager.yaml", "{}")
	h.write("manifests/other.yaml", "{}")
	return h
}

func (h host) write(name, text string) {
	h.t.Helper()
	path := filepath.Join(h.folder, name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// wantManifests fails the test unless the kubelet's folder has these files.
func (h host) wantManifests(names ...string) {
	h.t.Helper()
	entries, err := os.ReadDir(h.Manifests)
	if err != nil {
		h.t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	if !reflect.DeepEqual(got, names) {
		h.t.Errorf("the folder has %q, want %q", got, names)
	}
}

// TestMember reads the manifest in the kubelet's folder and, while the pods are stopped, in the other one.
func TestMember(t *testing.T) {
	h := newHost(t, "http://127.0.0.1:1", "https://127.0.0.1:1")
	want := node.Member{
		Name: "n1", PeerURLs: []string{"https://10.0.0.1:2380"}, ClientURLs: []string{"https://127.0.0.1:2379"}, MetricsURL: "http://127.0.0.1:1", DataDir: "/var/lib/etcd",
		CA: "/etc/more/sub/ca.crt", Cert: "/etc/more/sub/server.crt", Key: "/other/server.key", Owner: &node.Owner{UID: 7, GID: 8},
	}
	for range 2 {
		got, err := h.Member(t.Context())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
		_, err = h.Stop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
	}
	h.write("manifests/etcd.yaml", strings.Replace(etcdManifest, "name: NODE", "name: ETCD_DATA_DIR", 1)) // the flag prevails
	_, err := h.Member(t.Context())
	if err != nil {
		t.Error(err)
	}
	for text, says := range map[string]string{
		"": "it has no container", "[": "correct it",
		"metadata: {annotations: {etcd.k3s.io/initial: x}}" + etcdManifest:   "run rke2 server --cluster-reset",
		strings.Replace(etcdManifest, "name: NODE", "name: ETCD_WAL_DIR", 1): "sets ETCD_WAL_DIR with valueFrom, so etcd's data is not known: write the value",
	} {
		h := newHost(t, "http://127.0.0.1:1", "https://127.0.0.1:1")
		h.write("manifests/etcd.yaml", text)
		_, err := h.Member(t.Context())
		if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), says) {
			t.Errorf("the manifest %q: %v", text, err)
		}
	}
	none := kubeadm.Pods{Manifests: t.TempDir()}
	_, err = none.Member(t.Context())
	if !errors.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "name the kubelet's staticPodPath") {
		t.Errorf("without a manifest: %v", err)
	}
}

// TestMemberOfVariables checks the settings in variables of the container, and in a configuration file that one of them names.
func TestMemberOfVariables(t *testing.T) {
	h := newHost(t, "", "https://127.0.0.1:1")
	h.write("etcd.conf.yaml", "name: n1\ndata-dir: /data/etcd\nwal-dir: wal\nlisten-metrics-urls: http://127.0.0.1:1\n")
	plain := node.Member{
		Name: "n1", PeerURLs: []string{"http://localhost:2380"}, ClientURLs: []string{"http://localhost:2379"}, DataDir: h.folder + "/etcd", WALDir: h.folder + "/wal",
	}
	ofFile := plain
	ofFile.MetricsURL = "http://127.0.0.1:1"
	for variable, want := range map[string]node.Member{"OTHER": plain, "ETCD_CONFIG_FILE": ofFile} {
		h.write("manifests/etcd.yaml", strings.NewReplacer("FOLDER", h.folder, "OTHER", variable).Replace(variablesManifest))
		got, err := h.Member(t.Context())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", variable, got, err, want)
		}
	}
}

// TestOrder checks that all manifests leave the folder at once, and come back one after the other, each when the pod before it serves.
func TestOrder(t *testing.T) {
	code := http.StatusServiceUnavailable
	answer := func(path string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == path {
				w.WriteHeader(code)
				return
			}
			w.WriteHeader(http.StatusNotFound)
		}
	}
	metrics := httptest.NewServer(answer("/health"))
	defer metrics.Close()
	server := httptest.NewTLSServer(answer("/readyz"))
	defer server.Close()
	h := newHost(t, metrics.URL, server.URL)
	h.write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))

	h.wantProgress("the API server still accepts connections", h.stop)
	h.wantManifests("other")
	runs, err := h.Runs(t.Context())
	if err != nil || !runs {
		t.Errorf("pods whose manifests are aside are to run again: %v, %v", runs, err)
	}
	h.wantProgress("etcd has no leader yet", h.start)
	h.wantManifests("etcd", "other")
	code = http.StatusOK
	metrics.Close() // as that of an etcd that has ended
	h.wantProgress("etcd has no leader yet", h.start)
	metrics = httptest.NewServer(answer("/health"))
	h.write("manifests/etcd.yaml", strings.ReplaceAll(etcdManifest, "PROBE", metrics.URL))
	h.wantProgress("", h.start)
	h.wantManifests("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "other")

	h.wantProgress("the API server still accepts connections", h.stop)
	server.Close()
	metrics.Close()
	h.write("manifests/etcd.yaml", strings.ReplaceAll(etcdManifest, "PROBE", ""))
	h.wantProgress("", h.stop)
	h.wantProgress("the API server is not ready yet", h.start) // etcd has no metrics URL, so only the API server shows whether it serves
	h.wantManifests("etcd", "kube-apiserver", "other")
	h.write("manifests/kube-scheduler.yaml", "written: meanwhile")
	p, err := h.Enable(t.Context())
	if err != nil || !p.Done {
		t.Errorf("%+v, %v", p, err)
	}
	h.wantManifests("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "other")
	text, err := os.ReadFile(filepath.Join(h.Manifests, "kube-scheduler.yaml"))
	if string(text) != "written: meanwhile" {
		t.Errorf("the manifest that was written meanwhile is %q, %v", text, err)
	}
}

func (h host) stop() (string, error) {
	p, err := h.Stop(h.t.Context())
	return progress(p.Done, p.Waiting), err
}

func (h host) start() (string, error) {
	p, err := h.Start(h.t.Context())
	return progress(p.Done, p.Waiting), err
}

func progress(done bool, why string) string {
	if done != (why == "") {
		return fmt.Sprintf("done is %v, and it waits for %q", done, why)
	}
	return why
}

// wantProgress fails the test unless an act waits for this reason, or is done if it is "".
func (h host) wantProgress(want string, act func() (string, error)) {
	h.t.Helper()
	why, err := act()
	if err != nil || !strings.HasPrefix(why, want) || want == "" && why != "" {
		h.t.Errorf("it waits for %q, %v, want %q", why, err, want)
	}
}

// TestClusterAPI checks that a host that Cluster API has provisioned has a finding, also after a reboot, and with the name of its Cluster.
func TestClusterAPI(t *testing.T) {
	const done, named = "run/cluster-api/bootstrap-success.complete", "spec: {containers: [{command: [kube-controller-manager, --cluster-name=prod]}]}"
	const command = "kubeadm init && echo success > /" + done
	for name, c := range map[string]struct {
		file, text, manager string
		want                string // a part of the finding; "": there is none
	}{
		"another host":              {"", "", named, ""},
		"cloud-init of another one": {"var/lib/cloud/instance/scripts/runcmd", "kubeadm init", named, ""},
		"a host":                    {done, "success", named, "kubectl -n NAMESPACE patch cluster.cluster.x-k8s.io prod --type=merge -p '{\"spec\":{\"paused\":true}}'"},
		"cloud-init":                {"var/lib/cloud/instance/scripts/runcmd", command, named, "x-k8s.io prod "},
		"Ignition":                  {"etc/kubeadm.sh", command, named, "x-k8s.io prod "},
		"no name":                   {done, "success", "spec: {containers: [{command: [kube-controller-manager]}]}", "x-k8s.io NAME "},
		"no manifest":               {done, "success", "", "x-k8s.io NAME "},
	} {
		h := newHost(t, "http://127.0.0.1:1", "https://127.0.0.1:1")
		h.write("manifests/kube-controller-manager.yaml", c.manager)
		if c.file != "" {
			h.write(c.file, c.text)
		}
		found := h.CheckClusterAPI(h.folder)
		if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || found[0].Refuses || !strings.Contains(found[0].String(), c.want)) {
			t.Errorf("%s: %v, want %q", name, found, c.want)
		}
	}
}

// TestOtherKeys checks that a host whose API server has another CA than the stored assets is found out, and no other difference is.
func TestOtherKeys(t *testing.T) {
	h := newHost(t, "http://127.0.0.1:1", "https://127.0.0.1:1")
	root, c := t.TempDir(), stored.OpenCluster(t, mem.New(), "c")
	keys, to := stored.Pair(t)
	ca, other := filepath.Join(root, h.folder, "ca.crt"), filepath.Join(root, h.folder, "server.crt")
	manifest := filepath.Join(root, h.Manifests, "kube-apiserver.yaml")
	at := stored.Noon
	write := func(file, text string) {
		t.Helper()
		err := os.MkdirAll(filepath.Dir(file), 0o700)
		if err == nil {
			err = os.WriteFile(file, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	compare := func(keys seal.Keys, says string) {
		t.Helper()
		findings := h.CompareKeys(t.Context(), c, keys, restored.Node{Name: "n1", Root: root}, at)
		if says == "" && len(findings) > 0 || says != "" && (len(findings) != 1 || findings[0].Refuses || !strings.Contains(findings[0].String(), says)) {
			t.Errorf("the findings are %v, want one with %q", findings, says)
		}
	}

	take := func(now time.Time) {
		t.Helper()
		_, err := taken.Take(t.Context(), c, taken.Request{Node: "n1", Root: root, Paths: []string{h.folder}, To: to, Now: now})
		if err != nil {
			t.Fatal(err)
		}
	}
	own, err := os.ReadFile(filepath.Join(h.Manifests, "kube-apiserver.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	write(ca, "old")
	write(other, "old")
	compare(keys, "the repository has no assets of node n1")
	take(stored.Noon)
	write(other, "new")
	err = os.Chmod(ca, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	compare(keys, "")
	compare(seal.Keys{}, "dr assets diff") // no key
	write(ca, "new")
	linked := strings.Replace(serverManifest, "--client-ca-file=/pki/ca.crt", "--service-account-key-file=/pki/link.crt, --service-account-key-file=/pki/other.crt", 1)
	err = os.Symlink("ca.crt", filepath.Join(root, h.folder, "link.crt"))
	if err != nil {
		t.Fatal(err)
	}
	h.write("manifests/kube-apiserver.yaml", strings.NewReplacer("HOST", "127.0.0.1", "PORT", "1", "FOLDER", h.folder).Replace(linked))
	compare(keys, "ca.crt: with") // through a link, and the first of two flags
	h.write("manifests/kube-apiserver.yaml", string(own))
	compare(keys, "of node n1: "+filepath.Join(h.folder, "ca.crt")+": with")
	take(stored.Noon.Add(time.Hour))
	compare(keys, "") // the keys may be those of noon, or those of an hour later
	at = stored.Noon.Add(2 * time.Hour)
	compare(keys, "")
	write(ca, "old")
	compare(keys, "ca.crt: with")
	write(ca, "new")
	write(manifest, strings.Replace(string(own), "--client-ca-file=", "--encryption-provider-config=/pki/keys.yaml, --client-ca-file=", 1))
	write(filepath.Join(root, h.folder, "keys.yaml"), "secret")
	take(at)
	compare(keys, "kube-apiserver.yaml: with") // it names no encryption configuration
	write(filepath.Join(root, h.folder, "keys.yaml"), "another secret")
	compare(keys, "keys.yaml, "+h.folder+"/manifests/kube-apiserver.yaml: with")
	err = os.Remove(ca)
	if err != nil {
		t.Fatal(err)
	}
	compare(keys, "/ca.crt, ")
	err = os.Remove(filepath.Join(h.Manifests, "kube-apiserver.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	compare(keys, "")
}
