// Package kubernetes runs dr operator on a real Kubernetes, as docs/kubernetes.md describes it. It observes the result by kubectl,
// etcdctl, etcdutl and the store.
package kubernetes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/cluster"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/process"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

func TestMain(m *testing.M) { os.Exit(command.Main(m)) }

// site is a Kubernetes with a store, in which docs/kubernetes.md is followed.
type site struct {
	*cluster.Cluster
	client              dynamic.Interface
	store, minio        *cluster.Store        // versitygw, and MinIO with the same credentials; minio is nil in some tests
	urls                byNamespace[string]   // of the repositories
	flags               byNamespace[[]string] // of etcdctl; nil: none
	endpoints           byNamespace[string]   // of etcdctl; "": the first member of the StatefulSet etcd
	identities          byNamespace[string]   // files that open the backups; "": none is needed
	image               string
	identity, recipient string // the file that opens the backups of payments, and its public key
}

// byNamespace contains a value for each namespace. Tests that run at once use it.
type byNamespace[V any] struct{ values sync.Map }

func (b *byNamespace[V]) set(namespace string, value V) { b.values.Store(namespace, value) }

// of returns the value of a namespace, or zero.
func (b *byNamespace[V]) of(namespace string) V {
	value, _ := b.values.Load(namespace)
	typed, _ := value.(V)
	return typed
}

// TestOnKubernetes runs all tests on one cluster.
func TestOnKubernetes(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a Kubernetes")
	}
	s := startSite(t)
	t.Run("NewInstallation", s.testNewInstallation)
	t.Run("RightToRestore", s.testRightToRestore)
	t.Run("AtOnce", func(t *testing.T) { // they wait most of the time; the longest come first
		t.Run("Restore", s.testRestore)
		t.Run("RestoreKilled", s.testRestoreKilled)
		t.Run("RestoreAndBack", s.testRestoreAndBack)
		t.Run("RestoreSecured", s.testRestoreSecured)
		t.Run("RestoreOrdered", s.testRestoreOrdered)
		t.Run("RestoreRefused", s.testRestoreRefused)
		t.Run("RestoreByCommand", s.testRestoreByCommand)
		t.Run("SurvivingDisk", s.testDisks)
		t.Run("Coreos", s.testCoreos)
		t.Run("Bitnami", s.testBitnami)
		t.Run("Converted", s.testConverted)
		t.Run("Cnych", s.testCnych)
		t.Run("EtcdIO", s.testEtcdIO)
		t.Run("Drill", s.testDrill)
		t.Run("Sidecar", s.testSidecar)
		t.Run("Tenants", s.testTenants)
	})
	t.Run("APIServerIsDown", s.testAPIServerIsDown)
	t.Run("Rights", s.testRights)
	t.Run("AllLost", s.testAllLost)
	t.Run("Uninstall", s.testUninstall)
	t.Run("Helm", s.testHelm)
}

// TestSoakOnKubernetes runs what TestOnKubernetes has no time for: restores that are deleted midway or fail first, a copy, an archive over TLS,
// an API server that is killed in each phase.
func TestSoakOnKubernetes(t *testing.T) {
	soak.Only(t, "takes half an hour")
	s := startSite(t)
	t.Run("RightToRestore", s.testRightToRestore)
	t.Run("AtOnce", func(t *testing.T) {
		t.Run("RestoreBack", s.testRestoreBack)
		t.Run("RestoreAndBack", s.testRestoreAndBack)
		t.Run("RestoreSecured", s.testRestoreSecured)
		t.Run("SecuredEtcd", s.testSecuredEtcd)
	})
	t.Run("APIServerIsKilled", s.testAPIServerIsKilled)
}

// startSite starts a Kubernetes with both stores, and installs the operator with the test FirstBackup.
func startSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.minio = s.StartMinio(t)
	installed := t.Run("FirstBackup", s.testFirstBackup)
	if !installed {
		t.FailNow()
	}
	return s
}

// newSite starts a Kubernetes with a store.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Cluster: cluster.Start(t), identity: filepath.Join(t.TempDir(), "identity.txt")}
	s.client = s.Client(t, "")
	s.store, s.image = s.StartStore(t), s.LoadDR(t)
	s.recipient = command.Keygen(t, s.identity)
	return s
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
	s.applyManifest(t, "testdata/etcd.yaml", namespace, version, changes...)
}

// applyManifest applies a manifest of the StatefulSet etcd, and waits until its members are ready.
func (s *site) applyManifest(t *testing.T, file, namespace, version string, changes ...string) {
	t.Helper()
	s.Kubectl(t, filled(t, file, append(changes, "NAMESPACE", namespace, "VERSION", version)...), "-n", namespace, "apply", "-f", "-")
	s.Kubectl(t, "", "-n", namespace, "rollout", "status", "statefulset/etcd", "--timeout", patience.String())
}

// filled returns a file with changes: pairs of an old and a new text.
func filled(t *testing.T, file string, changes ...string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(changes...).Replace(string(text))
}

// etcdctl runs a command on the first member, and decodes its result, unless result is nil. It does not need the API server.
func (s *site) etcdctl(t *testing.T, namespace string, result any, args ...string) {
	t.Helper()
	scheme, flags := "http", s.flags.of(namespace)
	if flags != nil {
		scheme = "https"
	}
	endpoint := cmp.Or(s.endpoints.of(namespace), scheme+"://etcd-0.etcd."+namespace+".svc.cluster.local:2379")
	cmd := s.Command(nil, slices.Concat([]string{"etcdctl", "--endpoints", endpoint, "-w", "json", "--dial-timeout", "1m", "--command-timeout", "1m"}, flags, args)...)
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
	url := s.store.Bucket(t, namespace)
	s.urls.set(namespace, url)
	s.credentials(t, namespace)
	s.Kubectl(t, object(namespace, url, fields), "apply", "-f", "-")
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

// eventually waits until a condition holds, each look at which may run a command.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	await(t, process.Pause, what, holds)
}

// often is the pause between looks that cost little.
func often(time.Time) time.Duration { return 300 * time.Millisecond }

// await waits until a condition holds. pause returns how long to wait between two looks, of which the first was at start.
func await(t *testing.T, pause func(start time.Time) time.Duration, what string, holds func() bool) {
	t.Helper()
	start := time.Now()
	for !holds() {
		if time.Since(start) > patience {
			t.Fatalf("waited for: %s", what)
		}
		time.Sleep(pause(start))
	}
	t.Logf("%.1f s: %s", time.Since(start).Seconds(), what)
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

// backups returns the backups of the StatefulSet etcd in a namespace, the newest first.
func (s *site) backups(t *testing.T, namespace string) []document.Backup {
	t.Helper()
	return dr[document.List](t, s, "list", "--repo", s.urls.of(namespace), "--cluster", namespace+".etcd").Backups
}

// testUninstall removes everything that was installed. Nothing waits for a finalizer, and the backups stay.
func (s *site) testUninstall(t *testing.T) {
	for _, rights := range []string{"drills.yaml", "restores.yaml"} {
		s.Kubectl(t, "", "delete", "-f", "../../deploy/kubernetes/"+rights, "--timeout", patience.String())
	}
	s.Kubectl(t, "", "delete", "-k", "../../deploy/kubernetes", "--timeout", patience.String())
	s.Kubectl(t, "", "delete", "namespace", "orders", "--timeout", patience.String())
	for _, namespace := range []string{"payments", "orders"} {
		if len(s.backups(t, namespace)) == 0 {
			t.Errorf("the backups of %s are gone", namespace)
		}
	}
}
