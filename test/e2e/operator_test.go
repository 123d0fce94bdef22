package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/apiserver"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/golden"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// operated is a Kubernetes API with the custom resources, an etcd cluster to back up, and a store.
type operated struct {
	api     *apiserver.APIServer
	etcd    *servers.Cluster
	store   *objectstores.S3Server
	bucket  string
	proxy   *objectstores.Proxy // between the operator and the store
	url     string              // of the repository, through the proxy
	service *command.Service
}

// newOperated starts all of it, the API server with more flags.
func newOperated(t *testing.T, flags ...string) *operated {
	withServers(t)
	store := objectstores.S3Plain(t)
	o := &operated{
		api:  apiserver.Start(t, servers.Start(t, servers.Options{Version: "3.6"}), flags...),
		etcd: servers.Start(t, servers.Options{Version: "3.6"}), store: store, bucket: store.Bucket(t),
		proxy: objectstores.NewProxy(t, store.Endpoint),
	}
	o.url = store.Through(o.proxy).URL(o.bucket, "etcd")
	o.api.Kubectl(t, "", "apply", "--server-side", "-f", "../../deploy/kubernetes/crds")
	o.api.Kubectl(t, "", "wait", "--for=condition=Established", "crd/etcdbackups.etcd-dr.io", "crd/etcdrestores.etcd-dr.io", "--timeout=60s")
	o.api.Kubectl(t, "", "apply", "--server-side", "-f", "../../deploy/kubernetes/rbac.yaml")
	o.api.Kubectl(t, "", "create", "namespace", "payments")
	args := []string{"-n", "payments", "create", "secret", "generic", "store"}
	for key, value := range store.Secret() {
		args = append(args, "--from-literal="+key+"="+value)
	}
	o.api.Kubectl(t, "", args...)
	return o
}

// start starts the operator, with the rights of its service account alone, and with more flags.
func (o *operated) start(t *testing.T, flags ...string) {
	access := o.api.As(t, "etcd-dr", "etcd-dr")
	args := append([]string{"operator", "--kubeconfig", access, "--allow-loopback", "--patience", "2s"}, flags...)
	o.service = command.Listen(t, objectstores.WrongEnv(), args...)
}

// object returns an EtcdBackup of the etcd cluster, with more fields of its spec.
func (o *operated) object(name, fields string) string {
	return fmt.Sprintf(`
apiVersion: etcd-dr.io/v1alpha1
kind: EtcdBackup
metadata: {name: %s, namespace: payments}
spec:
  source: {endpoints: [%q]}
  cluster: payments.etcd
  unencrypted: true
  repositories: [{name: main, url: %q, credentialsSecret: {name: store}}]
%s
`, name, o.etcd.Endpoints()[0], o.url, fields)
}

// backup is the part of an EtcdBackup's status that the tests compare.
type backup struct {
	Phase, Message string
	Last           struct {
		ID       string
		Revision int64
		Proof    string
	}
	Next          string
	NextDrill     string
	RecoveryPoint time.Time
	Window        struct{ From, To struct{ Revision int64 } }
	Recent        []struct{ Job, Verdict, Message string }
	Findings      []struct{ Name, Severity string }
	Conditions    []struct{ Type, Status, Reason, Message string }
}

func (o *operated) status(t *testing.T, name string) backup {
	t.Helper()
	var read struct{ Status backup }
	err := json.Unmarshal([]byte(o.api.Kubectl(t, "", "-n", "payments", "get", "edb", name, "-o", "json")), &read)
	if err != nil {
		t.Fatal(err)
	}
	return read.Status
}

func (b backup) condition(name string) string {
	for _, c := range b.Conditions {
		if c.Type == name {
			return c.Status + " " + c.Reason + ": " + c.Message
		}
	}
	return ""
}

// list returns the backups in the store.
func (o *operated) list(t *testing.T) []document.Backup { return o.listAll(t).Backups }

// listAll returns the content of the store.
func (o *operated) listAll(t *testing.T) document.List {
	t.Helper()
	return command.Result[document.List](t, o.store.Env(), "list", "--repo", o.store.URL(o.bucket, "etcd"), "--cluster", "payments.etcd")
}

// stored waits until the store contains an object with that name, which extensions may follow.
func (o *operated) stored(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" is stored", func() bool {
		return slices.ContainsFunc(o.objects(t), func(object types.Object) bool { return strings.Contains(*object.Key, "/"+name) })
	})
}

// objects returns the first thousand objects in the store.
func (o *operated) objects(t *testing.T) []types.Object {
	t.Helper()
	page, err := o.store.Client(t).ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &o.bucket})
	if err != nil {
		t.Fatal(err)
	}
	return page.Contents
}

// wantMetrics fails the test unless /metrics contains all names.
func (o *operated) wantMetrics(t *testing.T, names ...string) {
	t.Helper()
	text := get(t, o.service, "/metrics")
	for _, name := range names {
		if !strings.Contains(text, "\n"+name) {
			t.Errorf("/metrics lacks %s", name)
		}
	}
}

// TestOperatorTakesOneBackup applies an EtcdBackup without a schedule: the store then contains exactly one backup, with the workload's
// revision, even if the operator is killed and started anew, on nothing but the API server and the store.
func TestOperatorTakesOneBackup(t *testing.T) {
	o := newOperated(t)
	put(t, o.etcd.Client(t), "order", "1")
	o.start(t)
	o.api.Kubectl(t, o.object("now", ""), "apply", "-f", "-")
	eventually(t, "the backup is taken", func() bool { return o.status(t, "now").Phase == "Completed" })
	o.wantMetrics(t, "etcd_dr_build_info", `controller_runtime_reconcile_total{controller="etcdbackup",result="success"}`, `workqueue_depth{controller="etcdbackup"`)

	taken := o.list(t)
	got := o.status(t, "now")
	if len(taken) != 1 || string(taken[0].ID) != got.Last.ID || taken[0].Revision != got.Last.Revision || got.Last.Revision != 2 {
		t.Fatalf("the status names %+v, the store contains %+v", got.Last, taken)
	}
	o.service.Kill(t)
	o.start(t)
	put(t, o.etcd.Client(t), "order", "2")
	o.api.Kubectl(t, o.object("daily", fmt.Sprintf(`  schedule: {cron: "0 %d * * *"}`, time.Now().Add(12*time.Hour).UTC().Hour())), "apply", "-f", "-")
	eventually(t, "the old backup counts for the schedule", func() bool {
		s := o.status(t, "daily")
		return s.Last.ID == got.Last.ID && s.Next != "" && strings.HasPrefix(s.condition("Protected"), "True")
	})
	if len(o.list(t)) != 1 {
		t.Errorf("there are %d backups, want the first one alone", len(o.list(t)))
	}
	o.api.Kubectl(t, `
apiVersion: etcd-dr.io/v1alpha1
kind: EtcdBackup
metadata: {name: before-upgrade, namespace: payments}
spec: {like: daily}
`, "apply", "-f", "-")
	eventually(t, "a backup like the daily ones is taken", func() bool { return o.status(t, "before-upgrade").Phase == "Completed" })
	again := o.status(t, "before-upgrade")
	if again.Last.Revision != 3 || len(o.list(t)) != 2 {
		t.Errorf("the second backup is %+v, and there are %d", again.Last, len(o.list(t)))
	}
	eventually(t, "each backup has its event", func() bool {
		events := o.api.Kubectl(t, "", "-n", "payments", "get", "events")
		return strings.Contains(events, "backup "+got.Last.ID+" is stored") && strings.Contains(events, "backup "+again.Last.ID+" is stored")
	})
	o.service.Stop(t)
}

// TestOperatorKilledBeforeTheAnswer kills the operator when the store contains the manifest, and the operator does not know it: the next
// one finds the backup, and takes no second one.
func TestOperatorKilledBeforeTheAnswer(t *testing.T) {
	o := newOperated(t)
	o.proxy.Latency(3 * time.Second)
	o.start(t)
	o.api.Kubectl(t, o.object("now", ""), "apply", "-f", "-")
	o.stored(t, catalog.SnapshotName)
	o.proxy.Latency(time.Minute)
	o.stored(t, catalog.ManifestName)
	o.service.Kill(t)
	if o.status(t, "now").Phase == "Completed" {
		t.Fatal("the operator knew of the backup before it was killed")
	}
	o.proxy.Clear()
	o.start(t)
	eventually(t, "the backup is found", func() bool { return o.status(t, "now").Phase == "Completed" })
	taken := o.list(t)
	if len(taken) != 1 || string(taken[0].ID) != o.status(t, "now").Last.ID || !strings.HasPrefix(taken[0].Labels["trigger"], "EtcdBackup payments/now, UID ") {
		t.Errorf("the store contains %+v", taken)
	}
}

// refused are EtcdBackups that the API server refuses: each the spec, after the one that it changes if there is one.
var refused = [][]string{
	{`{}`},
	{`{like: a, source: {endpoints: ["http://etcd:2379"]}}`},
	{`{like: a, timeout: 1h}`},
	{`{source: {endpoints: ["http://etcd:2379"]}, unencrypted: true}`},
	{withSource(`{endpoints: ["http://etcd:2379"]}`, "suspend: true")},
	{withSource(`{endpoints: ["http://etcd:2379"]}`, "archive: {flush: 10s}")},
	{withSource(`{endpoints: ["http://etcd:2379"]}`, "timeout: soon")},
	{withSource(`{endpoints: ["http://etcd:2379"]}`, "triggers: {}")},
	{withSource(`{endpoints: ["http://etcd:2379"]}`, `schedule: {cron: "@daily"}, retention: {}`)},
	{withSource(`{endpoints: ["http://etcd:2379"]}`, "shedule: {}")},
	{withSource(`{}`, "")},
	{withSource(`{endpoints: ["http://etcd:2379"], statefulSet: {name: etcd}}`, "")},
	{withSource(`{endpoints: ["etcd:2379"]}`, "")},
	{withSource(`{endpoints: ["http://root:secret@etcd:2379"]}`, "")},
	{withRepository(`{name: main, url: "s3://b", credentialsSecret: {name: s}}`, "unencrypted: false")},
	{withRepository(`{name: main, url: "file:///b", credentialsSecret: {name: s}}`, "unencrypted: true")},
	{withRepository(`{name: main, url: "s3://b", credentialsSecret: {name: a/b}}`, "unencrypted: true")},
	{withRepository(`{name: main, url: "s3://b", credentialsSecret: {name: s}, lock: {for: 1d, mode: forever}}`, "unencrypted: true")},
	{withRepository(`{name: main, url: "s3://b", credentialsSecret: {name: s}, trust: [`+strings.Repeat("RW", 28)+`]}`, "unencrypted: true")},
	{withRepository(`{name: a, url: "s3://b", credentialsSecret: {name: s}}, {name: a, url: "s3://c", credentialsSecret: {name: s}}`, "unencrypted: true")},
	{withRepository(`{name: main, url: "s3://b", credentialsSecret: {name: s}}`, "labels: {}")},
	{withSource(`{endpoints: ["http://etcd:2379"]}`, ""), withSource(`{endpoints: ["http://etcd:2379"]}`, "labels: {team: a}")},
	{
		withSource(`{endpoints: ["http://etcd:2379"]}`, `schedule: {cron: "@daily"}, cluster: payments.a`),
		withSource(`{endpoints: ["http://etcd:2379"]}`, `schedule: {cron: "@daily"}, cluster: payments.b`),
	},
	{`{like: a, drill: {schedule: {cron: "@weekly"}}}`},
	{withSource(`{endpoints: ["http://etcd:2379"]}`, `drill: {schedule: {cron: "@weekly"}}`)},
	{withRepository(
		`{name: main, url: "s3://b", credentialsSecret: {name: s}}`,
		`recipients: [age1], schedule: {cron: "@daily"}, drill: {schedule: {cron: "@weekly"}}`,
	)},
}

// withSource returns a spec with that source and more fields.
func withSource(source, fields string) string {
	return fmt.Sprintf(`{source: %s, repositories: [{name: main, url: "s3://b", credentialsSecret: {name: s}}], unencrypted: true, %s}`, source, fields)
}

// withRepository returns a spec with those repositories and more fields.
func withRepository(repositories, fields string) string {
	return fmt.Sprintf(`{source: {endpoints: ["http://etcd:2379"]}, repositories: [%s], %s}`, repositories, fields)
}

// refusals applies objects of a kind that the API server refuses, and returns its messages.
func (o *operated) refusals(t *testing.T, kind string, refused [][]string) string {
	t.Helper()
	var b strings.Builder
	for i, specs := range refused {
		var out apiserver.Output
		for _, spec := range specs {
			out = o.api.Try(t, fmt.Sprintf("{apiVersion: etcd-dr.io/v1alpha1, kind: %s, metadata: {name: wrong-%d, namespace: payments}, spec: %s}", kind, i, spec), "apply", "-f", "-")
		}
		if out.OK {
			t.Errorf("%s is accepted", specs)
		}
		fmt.Fprintf(&b, "%s\n%s\n", strings.Join(specs, "\n→ "), out.Stderr)
	}
	return b.String()
}

// TestOperatorRefuses applies EtcdBackups that the API server or the operator refuses, with the field and the remedy.
func TestOperatorRefuses(t *testing.T) {
	o := newOperated(t)
	golden.Want(t, "testdata/refusals.txt", []byte(o.refusals(t, "EtcdBackup", refused)))
	o.start(t, "--spool-dir", t.TempDir(), "--spool-backups", "1MiB")
	o.api.Kubectl(t, o.object("first", `  schedule: {cron: "@daily"}`), "apply", "-f", "-")
	eventually(t, "the first one is in effect", func() bool { return o.status(t, "first").Last.ID != "" })
	o.api.Kubectl(t, o.object("second", `  schedule: {cron: "@daily"}`), "apply", "-f", "-")
	o.api.Kubectl(t, strings.Replace(o.object("secretless", `  schedule: {cron: "@daily"}`), "{name: store}", "{name: gone}", 1), "apply", "-f", "-")
	limited := strings.NewReplacer("{name: store}", "{name: store}, limit: 1Mi", "payments.etcd", "payments.limited").Replace(o.object("limited", ""))
	o.api.Kubectl(t, limited, "apply", "-f", "-")
	eventually(t, "each refusal has its reason", func() bool {
		return strings.Contains(o.status(t, "second").condition("Accepted"), "False DuplicateCluster: an older EtcdBackup has the cluster name") &&
			strings.Contains(o.status(t, "secretless").condition("Accepted"), "False Invalid: spec.repositories[main].credentialsSecret: there is no Secret gone") &&
			strings.Contains(o.status(t, "limited").Message, "no room in the spool: the backup may take 1.0 MiB there, and 512 KiB of 1.0 MiB are left for it")
	})
}
