package apiserver

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/tools"
)

// Output is the result of a run of kubectl.
type Output struct {
	Stdout, Stderr string
	OK             bool
}

// Try runs kubectl as an administrator, with a text on stdin.
func (s *APIServer) Try(t testing.TB, stdin string, args ...string) Output {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tools.Path(t, "kubernetes", "kubectl"), args...)
	// It caches servers' answers below HOME, by their address: a port may have been another server's.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "HOME="+s.dir)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	return Output{stdout.String(), stderr.String(), err == nil}
}

// Kubectl is Try for a command that has to succeed; it returns stdout.
func (s *APIServer) Kubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	out := s.Try(t, stdin, args...)
	if !out.OK {
		t.Fatalf("kubectl %s:\n%s%s", strings.Join(args, " "), out.Stdout, out.Stderr)
	}
	return out.Stdout
}

// Get returns an object from the API server, with all digits of its numbers. The arguments are its kind and name, and
// flags that locate it.
func (s *APIServer) Get(t testing.TB, args ...string) map[string]any {
	t.Helper()
	out := s.Kubectl(t, "", append([]string{"get", "-o", "json"}, args...)...)
	numbers := json.NewDecoder(strings.NewReader(out))
	numbers.UseNumber()
	var object map[string]any
	err := numbers.Decode(&object)
	if err != nil {
		t.Fatalf("kubectl get %s: %v", strings.Join(args, " "), err)
	}
	return object
}
