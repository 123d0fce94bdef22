package deploy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
)

// rules is a file of alert rules.
type rules struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var file rules
	readYAML(t, alertsFile, &file)
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) == 0 {
		t.Fatalf("%s holds %d groups", alertsFile, len(file.Groups))
	}
	return file.Groups[0].Rules
}

func TestAlerts(t *testing.T) {
	page := readFile(t, "../../docs/metrics.md")
	for _, r := range alerts(t) {
		if !strings.Contains(page, "\n| "+r.Alert+" |") {
			t.Errorf("docs/metrics.md does not list %s", r.Alert)
		}
		wantMetrics(t, r.Alert, r.Expr+up(r.Expr))
		s := r.Labels["severity"]
		if s != "critical" && s != "warning" {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
		c := r.Labels["condition"]
		if c != "" && !slices.Contains(conditions(t), c) {
			t.Errorf("%s is about %q, which is no condition", r.Alert, c)
		}
		for _, a := range []string{"summary", "description", "runbook_url"} {
			if r.Annotations[a] == "" {
				t.Errorf("%s has no %s", r.Alert, a)
			}
		}
	}
}

// up replaces Prometheus' own metric up with one that the instance serves.
func up(expr string) string {
	if strings.HasPrefix(expr, "up{") {
		return " etcd_dr_build_info"
	}
	return ""
}

func TestAlertsFireAndAreSilent(t *testing.T) {
	promtool(t, "check", "rules", alertsFile)
	promtool(t, "test", "rules", alertTests)
}

// TestEveryAlertIsTested checks that each alert has a test in which it fires and one in which it does not, without
// which promtool's success means nothing.
func TestEveryAlertIsTested(t *testing.T) {
	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				EvalTime  string `yaml:"eval_time"`
				ExpAlerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
			Other map[string]any `yaml:",inline"`
		}
		Other map[string]any `yaml:",inline"`
	}
	readYAML(t, alertTests, &file)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.AlertRuleTest {
			fires[a.Alertname] = fires[a.Alertname] || len(a.ExpAlerts) > 0
			silent[a.Alertname] = silent[a.Alertname] || len(a.ExpAlerts) == 0
		}
	}
	for _, r := range alerts(t) {
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: a test in which it fires: %v, in which it is silent: %v", r.Alert, fires[r.Alert], silent[r.Alert])
		}
	}
}

// TestEveryConditionHasAnAlert lets each condition hold, once with each severity, and counts the alerts that fire.
func TestEveryConditionHasAnAlert(t *testing.T) {
	file, err := filepath.Abs(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%s]\ntests:\n", file)
	for severity, alert := range map[condition.Severity]string{
		condition.Critical: "EtcdDRConditionCritical", condition.Warning: "EtcdDRConditionWarning",
	} {
		fmt.Fprintf(&b, "  - interval: 1m\n    input_series:\n")
		for _, name := range condition.Names {
			fmt.Fprintf(&b, "      - {series: 'etcd_dr_condition{cluster=\"c\", repository=\"r\", condition=\"%s\", severity=\"%s\"}', values: 1x120}\n", name, severity)
		}
		fmt.Fprintf(&b, "    promql_expr_test:\n      - expr: count(ALERTS{alertname=\"%s\", alertstate=\"firing\"})\n", alert)
		fmt.Fprintf(&b, "        eval_time: 2h\n        exp_samples: [{value: %d}]\n", len(condition.Names))
	}
	promtool(t, "test", "rules", writeFile(t, "conditions.yaml", b.String()))
}

const runbookURL = "https://github.com/etcd-dr/etcd-dr/blob/main/docs/runbooks/"

// TestRunbooks checks that each alert and each condition leads to a page, that each page is led to or for an emergency, and that the
// list of pages is complete.
func TestRunbooks(t *testing.T) {
	wanted := append(conditions(t), emergencies...)
	for _, r := range alerts(t) {
		page, below := strings.CutPrefix(r.Annotations["runbook_url"], runbookURL)
		page, isPage := strings.CutSuffix(page, ".md")
		if !below || !isPage {
			t.Errorf("%s leads to %s", r.Alert, r.Annotations["runbook_url"])
		}
		if page != "{{ $labels.condition }}" {
			wanted = append(wanted, page)
		}
	}
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	got := pages(t)
	if !slices.Equal(got, wanted) {
		t.Errorf("there are pages for\n%q\nthere should be some for\n%q", got, wanted)
	}
	list := readFile(t, filepath.Join(runbooks, "README.md"))
	for _, page := range wanted {
		if !strings.Contains(list, "("+page+".md)") {
			t.Errorf("README.md does not list %s", page)
		}
	}
}

// conditions returns the names that scheduler/condition has constants for.
func conditions(t *testing.T) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../scheduler/condition/condition.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if ok && len(spec.Values) == 1 {
			kind, _ := spec.Type.(*ast.Ident)
			value, ok := spec.Values[0].(*ast.BasicLit)
			if ok && kind != nil && kind.Name == "Name" {
				name, _ := strconv.Unquote(value.Value)
				names = append(names, name)
			}
		}
		return true
	})
	if !slices.Contains(names, string(condition.NoBackup)) {
		t.Fatalf("the names of conditions are not found any more: %q", names)
	}
	return names
}

// pages returns the names of the runbooks, without their list, and with the folder of those for Kubernetes.
func pages(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "kubernetes/*.md"} {
		found, err := fs.Glob(os.DirFS(runbooks), pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			names = append(names, strings.TrimSuffix(file, ".md"))
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool { return name == "README" })
}

// emergencies are the runbooks to which no alert leads: a person recognizes the situation.
var emergencies = []string{"kubernetes/AllLost", "kubernetes/DataDeleted", "kubernetes/QuorumLost"}

var link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

// TestRunbookPages checks that a page is short, as is needed at 3 a.m., and that its links exist.
func TestRunbookPages(t *testing.T) {
	for _, page := range append(pages(t), "README") {
		text := readFile(t, filepath.Join(runbooks, page+".md"))
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			_, err := os.Stat(filepath.Join(runbooks, filepath.Dir(page), m[1]))
			if err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
		if page == "README" {
			continue
		}
		rest := text
		for _, part := range []string{"# " + filepath.Base(page) + "\n", "**You see:**", "**At risk:**", "**Look:**", "**Do:**", "**Over when**"} {
			_, after, found := strings.Cut(rest, part)
			if !found {
				t.Errorf("%s has no %s, or not in this place", page, part)
			}
			rest = after
		}
		lines := strings.Count(text, "\n")
		if lines > 42 {
			t.Errorf("%s has %d lines", page, lines)
		}
	}
}

// TestRunbooksNameTheirAlerts checks that a page names the alerts that lead to it, and no others. A condition leads to it
// through the alerts for each of its severities in docs/conditions.md.
func TestRunbooksNameTheirAlerts(t *testing.T) {
	for _, page := range pages(t) {
		_, part, _ := strings.Cut(readFile(t, filepath.Join(runbooks, page+".md")), "**You see:**")
		part, _, _ = strings.Cut(part, "**At risk:**")
		var wanted []string
		for _, r := range alerts(t) {
			if r.Annotations["runbook_url"] == runbookURL+page+".md" {
				wanted = append(wanted, r.Alert)
			}
		}
		severities := severitiesOf(t, page)
		if !strings.Contains(part, "No condition") {
			for _, s := range []string{"Critical", "Warning"} {
				if strings.Contains(severities, strings.ToLower(s)) {
					wanted = append(wanted, "EtcdDRCondition"+s)
				}
			}
		}
		named := regexp.MustCompile(`EtcdDR\w+`).FindAllString(part, -1)
		slices.Sort(named)
		slices.Sort(wanted)
		if !slices.Equal(slices.Compact(named), wanted) {
			t.Errorf("%s names the alerts\n%q\nthese lead to it\n%q", page, named, wanted)
		}
	}
}

// severitiesOf returns the severities of a condition as docs/conditions.md describes them, or "".
func severitiesOf(t *testing.T, name string) string {
	t.Helper()
	_, row, _ := strings.Cut(readFile(t, "../../docs/conditions.md"), "\n| `"+name+"` |")
	text, _, _ := strings.Cut(row, "|")
	return text
}
