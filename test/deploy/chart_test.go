package deploy

import (
	"errors"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/etcd-dr/etcd-dr/test/apiserver"
	"github.com/etcd-dr/etcd-dr/test/golden"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

const (
	chart         = "../../deploy/kubernetes/chart"
	kustomization = "../../deploy/kubernetes"
	etcdBackups   = "../../deploy/kubernetes/examples/etcd-backups.yaml"
)

// allValues sets every value of the chart that has no default, or another one.
var allValues = []string{
	"--set=image.repository=registry.example.com:5000/etcd-dr", "--set=image.tag=v1.2.3", "--set=image.pullPolicy=Always",
	"--set=imagePullSecrets[0].name=registry", "--set=replicas=3", "--set=watchNamespace=payments", "--set=concurrency=2",
	"--set=drills.enabled=true", "--set=drills.concurrency=3", "--set=restores.enabled=true", "--set=allowLoopback=true",
	"--set=ambientPrefixes={s3://backups/\\{\\{namespace\\}\\}}", "--set=podLabels.use=yes", "--set=spool.enabled=true", "--set=spool.backups=6Gi", "--set=resources.limits.cpu=2", "--set=nodeSelector.role=backups",
	"--set=tolerations[0].operator=Exists", "--set=podAnnotations.team=storage", "--set=serviceAccount.annotations.role=none",
	"--set=api.enabled=true", "--set=serviceMonitor.enabled=true", "--set=serviceMonitor.interval=1m",
	"--set=serviceMonitor.labels.release=prometheus", "--set=prometheusRule.enabled=true",
	"--set=prometheusRule.labels.release=prometheus", "--set=dashboard.enabled=true",
	`--set-json=affinity={"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":` +
		`{"nodeSelectorTerms":[{"matchExpressions":[{"key":"role","operator":"Exists"}]}]}}}`,
}

func helm(t *testing.T) (path string) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs helm")
	}
	return tools.Path(t, "helm", "helm")
}

// template returns the objects of the chart, as YAML, for a release named etcd-dr in the namespace etcd-dr.
func template(t *testing.T, from string, values ...string) string {
	t.Helper()
	return output(t, helm(t), append([]string{"template", "etcd-dr", from, "--namespace=etcd-dr"}, values...)...)
}

// object is a Kubernetes object.
type object map[string]any

// text returns the text at a path of fields; "" if it is missing.
func (o object) text(path ...string) (text string) {
	for _, field := range path[:len(path)-1] {
		o, _ = o[field].(object)
	}
	text, _ = o[path[len(path)-1]].(string)
	return text
}

// objects decodes objects, by kind, namespace and name.
func objects(t *testing.T, text string) map[string]object {
	t.Helper()
	all := map[string]object{}
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o object
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		all[o.text("kind")+" "+o.text("metadata", "namespace")+"/"+o.text("metadata", "name")] = o
	}
}

// withoutHelm removes the labels of the objects themselves, and below them the labels and annotations that only Helm's have.
func withoutHelm(all map[string]object) map[string]object {
	for _, o := range all {
		delete(o["metadata"].(object), "labels")
		removeKeys(o, "app.kubernetes.io/instance", "helm.sh/resource-policy")
	}
	return all
}

// removeKeys removes keys of all mappings in a node.
func removeKeys(node any, keys ...string) {
	switch n := node.(type) {
	case object:
		maps.DeleteFunc(n, func(key string, _ any) bool { return slices.Contains(keys, key) })
		for _, below := range n {
			removeKeys(below, keys...)
		}
	case []any:
		for _, below := range n {
			removeKeys(below, keys...)
		}
	}
}

// TestChartContainsTheAlertsAndTheDashboard checks the copies of these files: a package contains no links.
func TestChartContainsTheAlertsAndTheDashboard(t *testing.T) {
	for _, file := range []string{alertsFile, dashboardFile} {
		golden.Want(t, filepath.Join(chart, "files", filepath.Base(file)), []byte(readFile(t, file)))
	}
}

func TestChartPassesLint(t *testing.T) {
	output(t, helm(t), "lint", "--strict", chart)
	output(t, helm(t), append([]string{"lint", "--strict", chart}, allValues...)...)
}

// TestChartEqualsKustomization compares the objects of the chart, as a folder and as a package, with those of deploy/kubernetes. The
// namespace is not in the chart: Helm stores the release in it, so that it exists before.
func TestChartEqualsKustomization(t *testing.T) {
	dir := t.TempDir()
	output(t, helm(t), "package", chart, "--version=1.2.3", "--destination="+dir)
	want := withoutHelm(objects(t, output(t, tools.Path(t, "kubernetes", "kubectl"), "kustomize", kustomization)))
	delete(want, "Namespace /etcd-dr")
	if len(want) < 8 {
		t.Fatalf("deploy/kubernetes has only the objects %q", slices.Sorted(maps.Keys(want)))
	}
	for _, from := range []string{chart, filepath.Join(dir, "etcd-dr-1.2.3.tgz")} {
		diff := cmp.Diff(want, withoutHelm(objects(t, template(t, from))))
		if diff != "" {
			t.Errorf("%s (-kustomization +chart):\n%s", from, diff)
		}
	}
}

// TestChartAllows checks that the operator has rights to Jobs and pods only with drills.enabled or restores.enabled: those of drills.yaml
// and restores.yaml, or in the named namespaces alone.
func TestChartAllows(t *testing.T) {
	without := template(t, chart)
	if strings.Contains(without, "[jobs]") || strings.Contains(without, "[pods]") {
		t.Errorf("without drills and restores there are rights to Jobs or pods:\n%s", without)
	}
	if !strings.Contains(without, "[namespaces]") {
		t.Error("only rights that can be bound in a namespace show that it is being deleted: its EtcdRestore would keep it")
	}
	for _, what := range []string{"drills", "restores"} {
		role, binding := "ClusterRole /etcd-dr-"+what, "ClusterRoleBinding /etcd-dr-"+what
		want := withoutHelm(objects(t, readFile(t, filepath.Join(kustomization, what+".yaml"))))
		all := withoutHelm(objects(t, template(t, chart, "--set="+what+".enabled=true")))
		diff := cmp.Diff(want, map[string]object{role: all[role], binding: all[binding]})
		if diff != "" {
			t.Errorf("the rights (-%s.yaml +chart):\n%s", what, diff)
		}
		all = objects(t, template(t, chart, "--set="+what+".enabled=true", "--set="+what+".namespaces={payments,orders}"))
		for name, want := range map[string]bool{
			role: true, binding: false, "RoleBinding payments/etcd-dr-" + what: true, "RoleBinding orders/etcd-dr-" + what: true,
		} {
			if (all[name] != nil) != want {
				t.Errorf("%s exists: %t, want %t", name, !want, want)
			}
		}
	}
}

// TestChartSetsTheImage checks the tag: image.tag, or else the app version of the package.
func TestChartSetsTheImage(t *testing.T) {
	dir := t.TempDir()
	output(t, helm(t), "package", chart, "--version=1.2.3", "--app-version=v1.2.3", "--destination="+dir)
	from := filepath.Join(dir, "etcd-dr-1.2.3.tgz")
	for want, values := range map[string][]string{
		`"etcd-dr:v1.2.3"`:                   nil,
		`"registry.example.com/dr:v2"`:       {"--set=image.repository=registry.example.com/dr,image.tag=v2"},
		`"registry.example.com/dr:v1.2.3"`:   {"--set=image.repository=registry.example.com/dr"},
		`"localhost:5000/etcd/dr:v1.2.3"`:    {"--set=image.repository=localhost:5000/etcd/dr"},
		`"etcd-dr:v2@sha256:` + digest + `"`: {"--set=image.tag=v2@sha256:" + digest},
	} {
		got := template(t, from, values...)
		if !strings.Contains(got, "image: "+want+"\n") || !strings.Contains(got, "--job-image="+strings.Trim(want, `"`)+"\n") {
			t.Errorf("%q: the image, or that of drills, is not %s:\n%s", values, want, got)
		}
	}
}

const digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// TestChartRefusesWrongValues checks that the message names the value.
func TestChartRefusesWrongValues(t *testing.T) {
	for value, want := range map[string]string{
		"replica=3":                          "additional properties 'replica' not allowed",
		"replicas=many":                      "'/replicas'",
		"concurrency=-1":                     "'/concurrency'",
		"drills.concurrency=-1":              "'/drills/concurrency'",
		"drills.namespaces={a.b}":            "'/drills/namespaces/0'",
		"drills.namespaces[0]=":              "'/drills/namespaces/0'",
		"restores.enabled=yes":               "'/restores/enabled'",
		"restores.namespaces={a.b}":          "'/restores/namespaces/0'",
		"image.tag=5":                        "'/image/tag'",
		"image.repository=etcd-dr:v1":        "'/image/repository'",
		"image.pullPolicy=Sometimes":         "'/image/pullPolicy'",
		"watchNamespace=a.b":                 "'/watchNamespace'",
		"allowLoopback=1":                    "'/allowLoopback'",
		"ambientPrefixes={file:///srv}":      "'/ambientPrefixes/0'",
		"spool.sizeLimit=large":              "'/spool/sizeLimit'",
		"spool.backups=5GiB":                 "'/spool/backups'",
		"serviceMonitor.interval=often":      "'/serviceMonitor/interval'",
		"prometheusRule.enabled=1":           "'/prometheusRule/enabled'",
		"dashboard.label.a=b":                "'/dashboard'",
		"api.tlsSecret=":                     "'/api/tlsSecret'",
		"networkPolicy.enable=true":          "'/networkPolicy'",
		"securityContext.runAsNonRoot=false": "additional properties 'securityContext' not allowed",
	} {
		wantRefused(t, value, want)
	}
}

func wantRefused(t *testing.T, values, want string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), helm(t), "template", "etcd-dr", chart, "--set="+values).CombinedOutput()
	if err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%s: %v: the message does not contain %q:\n%s", values, err, want, out)
	}
}

// TestChartRefusesContradictions checks values that are right alone.
func TestChartRefusesContradictions(t *testing.T) {
	const own = " is one of the chart's own labels: remove it"
	for _, test := range [][2]string{
		{"serviceMonitor.enabled=true", "serviceMonitor.enabled needs api.enabled"},
		{"drills.enabled=true,drills.namespaces={a},watchNamespace=b", "drills.namespaces and watchNamespace exclude each other"},
		{"restores.enabled=true,restores.namespaces={a},watchNamespace=b", "restores.namespaces and watchNamespace exclude each other"},
		{`podLabels.app\.kubernetes\.io/name=dr`, "podLabels: app.kubernetes.io/name" + own},
		{`dashboard.enabled=true,dashboard.labels.helm\.sh/chart=dr`, "dashboard.labels: helm.sh/chart" + own},
		{`prometheusRule.enabled=true,prometheusRule.labels.app\.kubernetes\.io/instance=dr`, "prometheusRule.labels: app.kubernetes.io/instance" + own},
		{
			`api.enabled=true,serviceMonitor.enabled=true,serviceMonitor.labels.app\.kubernetes\.io/managed-by=me`,
			"serviceMonitor.labels: app.kubernetes.io/managed-by" + own,
		},
	} {
		wantRefused(t, test[0], test[1])
	}
}

// TestChartOfOneNamespaceHasNoClusterRole checks that no right of the operator exceeds its own namespace and the one that it serves,
// and that dr knows its flags.
func TestChartOfOneNamespaceHasNoClusterRole(t *testing.T) {
	all := objects(t, template(t, chart, allValues...))
	for name, o := range all {
		namespace := o.text("metadata", "namespace")
		if namespace == "" && o.text("kind") != "CustomResourceDefinition" {
			t.Errorf("%s is in no namespace", name)
		}
	}
	for _, name := range []string{
		"Role payments/etcd-dr-backups", "RoleBinding payments/etcd-dr-backups", "Role etcd-dr/etcd-dr", "Role payments/etcd-dr-drills",
		"RoleBinding payments/etcd-dr-drills", "Role payments/etcd-dr-restores", "RoleBinding payments/etcd-dr-restores",
	} {
		if all[name] == nil {
			t.Errorf("there is no %s in %q", name, slices.Sorted(maps.Keys(all)))
		}
	}
	args := argsOf(t, template(t, chart, allValues...))
	dr().knows(t, "the chart", "dr "+strings.Join(args, " "))
	want := []string{
		"operator", "--probe-listen=:8081", "--job-image=registry.example.com:5000/etcd-dr:v1.2.3", "--listen=:2391",
		"--tls-cert=/api/tls/tls.crt", "--tls-key=/api/tls/tls.key", "--tokens-file=/api/tokens/tokens", "--namespace=payments",
		"--concurrency=2", "--drills=3", "--allow-loopback", "--ambient-prefix=s3://backups/{{namespace}}", "--spool-dir=/spool", "--spool-backups=6Gi",
	}
	if !slices.Equal(args, want) {
		t.Errorf("the arguments are %q, want %q", args, want)
	}
}

// TestChartsElectTheirOwnLeaders checks that the Lease of another release is its own, and that the rights are to this one.
func TestChartsElectTheirOwnLeaders(t *testing.T) {
	text := output(t, helm(t), "template", "blue", chart, "--namespace=backups")
	for _, want := range []string{"--election-namespace=backups", "--election-name=blue-etcd-dr"} {
		if !slices.Contains(argsOf(t, text), want) {
			t.Errorf("there is no argument %s in %q", want, argsOf(t, text))
		}
	}
	if !strings.Contains(text, "resourceNames: [blue-etcd-dr]\n") {
		t.Errorf("the operator has no right to its Lease:\n%s", text)
	}
}

// argsOf returns the arguments of the operator in the objects of the chart.
func argsOf(t *testing.T, text string) []string {
	t.Helper()
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var deployment struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct{ Containers []struct{ Args []string } }
				}
			}
		}
		err := decoder.Decode(&deployment)
		if err != nil {
			t.Fatalf("there is no Deployment: %v:\n%s", err, text)
		}
		if deployment.Kind == "Deployment" {
			return deployment.Spec.Template.Spec.Containers[0].Args
		}
	}
}

// TestChartWatchesTheOperators checks that the alerts and the dashboard arrive as they are, and that the job is the one that alerts name.
func TestChartWatchesTheOperators(t *testing.T) {
	all := objects(t, template(t, chart, allValues...))
	rule, monitor, dashboard := all["PrometheusRule etcd-dr/etcd-dr"], all["ServiceMonitor etcd-dr/etcd-dr"], all["ConfigMap etcd-dr/etcd-dr-dashboard"]
	var want object
	err := yaml.Unmarshal([]byte(readFile(t, alertsFile)), &want)
	if err != nil {
		t.Fatal(err)
	}
	diff := cmp.Diff(want, rule["spec"])
	if diff != "" {
		t.Errorf("the alerts (-file +chart):\n%s", diff)
	}
	promtool(t, "check", "rules", writeFile(t, "rules.yaml", string(encoded(t, rule["spec"]))))
	if dashboard.text("data", "etcd-dr.json") != readFile(t, dashboardFile) {
		t.Error("the dashboard is not that of deploy/grafana")
	}
	service := all["Service etcd-dr/etcd-dr"]
	job := service.text("metadata", "labels", monitor.text("spec", "jobLabel"))
	if job != "etcd-dr" || !strings.Contains(readFile(t, alertsFile), `up{job=~"`+job) {
		t.Errorf("the alerts do not know the job %q", job)
	}
	for what, label := range map[string]string{
		"Prometheus' for the rule": rule.text("metadata", "labels", "release"), "Prometheus' for the monitor": monitor.text("metadata", "labels", "release"),
		"Grafana's": strings.ReplaceAll(dashboard.text("metadata", "labels", "grafana_dashboard"), "1", "prometheus"),
	} {
		if label != "prometheus" {
			t.Errorf("%s label is missing: %q", what, label)
		}
	}
}

func encoded(t *testing.T, value any) []byte {
	t.Helper()
	data, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestChartIsAccepted applies the chart to a real API server, which checks the pods against the standard "restricted", and the objects for
// the Prometheus Operator against its own definitions. It checks
// the rights of an operator of one namespace.
func TestChartIsAccepted(t *testing.T) {
	texts := []string{template(t, chart), template(t, chart, allValues...)}
	api := apiserver.Start(t, servers.Start(t, servers.Options{Version: "3.6"}))
	api.Kubectl(t, "", "create", "namespace", "payments")
	api.Kubectl(t, "", "create", "namespace", "etcd-dr")
	api.Kubectl(t, readFile(t, "testdata/monitoring.coreos.com.yaml"), "apply", "--server-side", "-f", "-")
	api.Kubectl(t, "", "wait", "--for=condition=Established", "--timeout=1m", "crd/servicemonitors.monitoring.coreos.com",
		"crd/prometheusrules.monitoring.coreos.com")
	api.Kubectl(t, "", "label", "namespace", "etcd-dr", "pod-security.kubernetes.io/warn=restricted")
	for _, text := range texts {
		out := api.Try(t, text, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
		if !out.OK || out.Stderr != "" {
			t.Errorf("%s", out.Stderr)
		}
	}
	api.Kubectl(t, texts[1], "apply", "--server-side", "-f", "-")
	api.Kubectl(t, "", "wait", "--for=condition=Established", "--timeout=1m", "crd/etcdbackups.etcd-dr.io")
	out := api.Try(t, "", "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", etcdBackups)
	if !out.OK || strings.Count(out.Stdout, "serverside-applied") < 5 {
		t.Errorf("the examples: %s%s", out.Stdout, out.Stderr)
	}
	can := func(asked string) bool {
		args := append([]string{"auth", "can-i", "--as=system:serviceaccount:etcd-dr:etcd-dr"}, strings.Fields(asked)...)
		return api.Try(t, "", args...).OK
	}
	for deadline := time.Now().Add(time.Minute); !can("watch etcdbackups -n payments"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the operator cannot watch EtcdBackups")
		}
	}
	for asked, want := range map[string]bool{
		"get secrets -n payments": true, "list secrets -n payments": false, "get secrets -n etcd-dr": false, "get secrets -n default": false,
		"create jobs -n payments": true, "create jobs -n etcd-dr": false,
		"get statefulsets -n payments": true, "patch etcdbackups --subresource=status -n payments": true, "list etcdbackups -A": false,
		"update leases/etcd-dr -n etcd-dr": true, "update leases/other -n etcd-dr": false,
	} {
		if can(asked) != want {
			t.Errorf("%s: allowed is %t, want %t", asked, !want, want)
		}
	}
}
