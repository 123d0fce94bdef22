// Package kubernetes runs dr operator on a real Kubernetes, as docs/kubernetes.md describes it. It observes the result by kubectl,
// etcdctl, etcdutl and the store.
package kubernetes

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/cluster"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

func TestMain(m *testing.M) { os.Exit(command.Main(m)) }

// site is a Kubernetes with a store, in which docs/kubernetes.md is followed.
type site struct {
	*cluster.Cluster
	store    *cluster.Store
	urls     map[string]string   // of the repositories, by namespace
	flags    map[string][]string // of etcdctl, by namespace; nil: none
	image    string
	identity string // that opens the backups of payments
}

// TestOnKubernetes runs all tests on one cluster.
func TestOnKubernetes(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a Kubernetes")
	}
	s := &site{Cluster: cluster.Start(t), urls: map[string]string{}, flags: map[string][]string{}}
	s.store, s.image = s.StartStore(t), s.LoadDR(t)
	t.Run("FirstBackup", s.testFirstBackup)
	t.Run("Drill", s.testDrill)
	t.Run("APIServerIsDown", s.testAPIServerIsDown)
	t.Run("SecuredEtcd", s.testSecuredEtcd)
	t.Run("Tenants", s.testTenants)
	t.Run("Rights", s.testRights)
	t.Run("Uninstall", s.testUninstall)
	t.Run("Helm", s.testHelm)
}

// startEtcd runs an etcd of three members in a new namespace, and waits until it is ready.
func (s *site) startEtcd(t *testing.T, namespace, version string) {
	t.Helper()
	s.Kubectl(t, "", "create", "namespace", namespace)
	s.applyEtcd(t, namespace, version)
}

// applyEtcd is startEtcd for a namespace that exists, with changes of the manifest: pairs of an old and a new text.
func (s *site) applyEtcd(t *testing.T, namespace, version string, changes ...string) {
	t.Helper()
	manifest, err := os.ReadFile("testdata/etcd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(append(changes, "NAMESPACE", namespace, "VERSION", version)...).Replace(string(manifest))
	s.Kubectl(t, text, "-n", namespace, "apply", "-f", "-")
	s.Kubectl(t, "", "-n", namespace, "rollout", "status", "statefulset/etcd", "--timeout", patience.String())
}

// etcdctl runs a command on the first member, and decodes its result, unless result is nil. It does not need the API server.
func (s *site) etcdctl(t *testing.T, namespace string, result any, args ...string) {
	t.Helper()
	scheme := "http"
	if s.flags[namespace] != nil {
		scheme = "https"
	}
	endpoint := scheme + "://etcd-0.etcd." + namespace + ".svc.cluster.local:2379"
	cmd := s.Command(nil, slices.Concat([]string{"etcdctl", "--endpoints", endpoint, "-w", "json", "--dial-timeout", "1m", "--command-timeout", "1m"}, s.flags[namespace], args)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("etcdctl %s: %v", strings.Join(args, " "), err)
	}
	if result == nil {
		return // not all commands print JSON
	}
	err = json.Unmarshal(out, result)
	if err != nil {
		t.Fatalf("etcdctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// put stores a key through the first member, and returns its revision.
func (s *site) put(t *testing.T, namespace, key, value string) int64 {
	t.Helper()
	var answer struct{ Header struct{ Revision int64 } }
	s.etcdctl(t, namespace, &answer, "put", key, value)
	return answer.Header.Revision
}

// apply creates an EtcdBackup of the StatefulSet etcd in a namespace, with a bucket of its own, and more fields of its spec.
func (s *site) apply(t *testing.T, namespace, fields string) {
	t.Helper()
	s.urls[namespace] = s.store.Bucket(t, namespace)
	s.credentials(t, namespace)
	s.Kubectl(t, object(namespace, s.urls[namespace], fields), "apply", "-f", "-")
}

// credentials creates the Secret with the stores' credentials.
func (s *site) credentials(t *testing.T, namespace string) {
	t.Helper()
	s.Kubectl(t, "", "-n", namespace, "create", "secret", "generic", "backups-s3",
		"--from-literal=AWS_ACCESS_KEY_ID="+s.store.AccessKey, "--from-literal=AWS_SECRET_ACCESS_KEY="+s.store.SecretKey)
}

func object(namespace, url, fields string) string {
	return fmt.Sprintf(`
apiVersion: etcd-dr.io/v1alpha1
kind: EtcdBackup
metadata: {name: etcd, namespace: %s}
spec:
  source: {statefulSet: {name: etcd}}
  unencrypted: true
  repositories: [{name: main, url: %q, credentialsSecret: {name: backups-s3}}]
  %s
`, namespace, url, strings.TrimSpace(fields))
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(500 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for: %s", what)
		}
	}
}

const patience = 10 * time.Minute // on cores that other tests use too

// dr runs dr next to the store, with a result in JSON.
func dr[T any](t *testing.T, s *site, args ...string) (result T) {
	t.Helper()
	cmd := s.Command(s.store.Env(), slices.Concat([]string{command.Path()}, args, []string{"-o", "json"})...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("dr %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	command.Output{Args: args, Stdout: string(out)}.Decode(t, &result)
	return result
}

var block = regexp.MustCompile("(?s)```(sh|yaml)\n(.*?)```")

// blocks returns the code blocks of a section of docs/kubernetes.md.
func blocks(t *testing.T, section string) (texts []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(page), "\n## "+section+"\n")
	if !found {
		t.Fatalf("docs/kubernetes.md has no section %s", section)
	}
	text, _, _ := strings.Cut(after, "\n## ")
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		texts = append(texts, m[2])
	}
	return texts
}

// testFirstBackup follows docs/kubernetes.md from nothing to a scheduled backup, and reads that backup with etcdutl. Then it removes
// the operator and installs it anew: the same backup counts, and no second one is taken.
func (s *site) testFirstBackup(t *testing.T) {
	s.startEtcd(t, "payments", "3.6")
	revision := s.put(t, "payments", "order", "1")
	url := s.store.Bucket(t, "payments")
	s.urls["payments"] = url
	dir := t.TempDir()
	identity := filepath.Join(dir, "identity.txt")
	recipient := regexp.MustCompile("age1[0-9a-z]+").FindString(command.Must(t, nil, "keygen", "--to", identity))

	text, err := os.ReadFile(identity)
	if err != nil {
		t.Fatal(err)
	}
	s.identity = string(text)

	page := strings.NewReplacer(
		"registry.example.com/etcd-dr:v1.2.3", s.image, "s3://backups/etcd?region=eu-central-1", url,
		"AWS_ACCESS_KEY_ID=…", "AWS_ACCESS_KEY_ID="+s.store.AccessKey, "AWS_SECRET_ACCESS_KEY=…", "AWS_SECRET_ACCESS_KEY="+s.store.SecretKey,
		"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p", recipient)
	texts := blocks(t, "Start")
	if len(texts) != 2 {
		t.Fatalf("the section has %d code blocks, want a manifest and the commands", len(texts))
	}
	err = os.WriteFile(filepath.Join(dir, "etcd-backup.yaml"), []byte(page.Replace(texts[0])), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	err = os.Symlink(filepath.Join(root, "deploy"), filepath.Join(dir, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	script := s.Command(nil, "bash", "-euxo", "pipefail", "-c", "cd "+dir+"\n"+page.Replace(texts[1]))
	out, err := script.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}

	listed := dr[document.List](t, s, "list", "--repo", url, "--cluster", "payments.etcd").Backups
	if len(listed) != 1 || listed[0].Revision != revision {
		t.Fatalf("the store contains %+v, want one backup at revision %d", listed, revision)
	}
	s.Eventually(t, string(listed[0].ID), "-n", "payments", "get", "edb", "etcd", "-o", "jsonpath={.status.last.id}")
	s.wantSnapshot(t, url, identity, revision)

	s.Kubectl(t, "", "delete", "namespace", "etcd-dr", "--timeout", patience.String())
	s.Kubectl(t, "", "-n", "payments", "get", "edb", "etcd") // stays
	install, _, _ := strings.Cut(page.Replace(texts[1]), "kubectl -n payments")
	out, err = s.Command(nil, "bash", "-euo", "pipefail", "-c", "cd "+dir+"\n"+install).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.Kubectl(t, "", "-n", "etcd-dr", "rollout", "status", "deployment/etcd-dr", "--timeout", patience.String())
	s.Eventually(t, string(listed[0].ID), "-n", "payments", "get", "edb", "etcd", "-o", "jsonpath={.status.last.id}")
	again := dr[document.List](t, s, "list", "--repo", url, "--cluster", "payments.etcd").Backups
	if len(again) != 1 {
		t.Errorf("after a new installation there are %d backups", len(again))
	}
}

// testUninstall removes everything that was installed. Nothing waits for a finalizer, and the backups stay.
func (s *site) testUninstall(t *testing.T) {
	s.Kubectl(t, "", "delete", "-k", "../../deploy/kubernetes", "--timeout", patience.String())
	s.Kubectl(t, "", "delete", "namespace", "orders", "--timeout", patience.String())
	for _, namespace := range []string{"payments", "orders"} {
		listed := dr[document.List](t, s, "list", "--repo", s.urls[namespace], "--cluster", namespace+".etcd").Backups
		if len(listed) == 0 {
			t.Errorf("the backups of %s are gone", namespace)
		}
	}
}

// wantSnapshot checks that etcdutl reads the newest backup, at a revision.
func (s *site) wantSnapshot(t *testing.T, url, identity string, revision int64) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "snapshot.db")
	fetch := s.Command(s.store.Env(), command.Path(), "fetch", "--repo", url, "--cluster", "payments.etcd", "--identity", identity, "--to", file)
	out, err := fetch.CombinedOutput()
	if err != nil {
		t.Fatalf("dr fetch: %v\n%s", err, out)
	}
	status := s.Command(nil, tools.Path(t, "etcd-3.6", "etcdutl"), "snapshot", "status", file, "-w", "json")
	out, err = status.Output()
	if err != nil {
		t.Fatal(err)
	}
	var read struct{ Revision int64 }
	err = json.Unmarshal(out, &read)
	if err != nil || read.Revision != revision {
		t.Errorf("etcdutl reads revision %d (%v), want %d", read.Revision, err, revision)
	}
	fmt.Fprintln(t.Output(), string(out))
}
