// Package deploy tests the files for operators of etcd-dr: alerts and their runbooks, the dashboard, units, the image
// and the release.
package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

func TestMain(m *testing.M) { os.Exit(command.Main(m)) }

const (
	alertsFile    = "../../deploy/prometheus/alerts.yaml"
	alertTests    = "../../deploy/prometheus/alerts_test.yaml"
	dashboardFile = "../../deploy/grafana/etcd-dr.json"
	runbooks      = "../../docs/runbooks"
)

// promtool runs Prometheus' own checks.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs promtool")
	}
	out, err := exec.CommandContext(t.Context(), tools.Path(t, "prometheus", "promtool"), args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %q: %v\n%s", args, err, out)
	}
}

// readYAML decodes a file, in which no key may be unknown.
func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	decoder := yaml.NewDecoder(f)
	decoder.KnownFields(true)
	err = decoder.Decode(into)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func writeFile(t *testing.T, name, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	err := os.WriteFile(path, []byte(content), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// output returns the output of a program, which must succeed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", fmt.Sprint(append([]string{name}, args...)), err, out)
	}
	return string(out)
}

// need skips the test if a program is missing, and fails it in CI.
func need(t *testing.T, program string) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs " + program)
	}
	_, err := exec.LookPath(program)
	if err != nil {
		tools.Missing(t, err.Error())
	}
}
