// Package command runs the dr binary for tests, as a user would: to its end, as a process whose events the test reads, or
// as a service.
package command

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/process"
)

// path of the binary, set by Main.
var path string

// Variable names the binary: if it is set, as by make test, Main builds nothing.
const Variable = "ETCD_DR_BINARY"

// Main builds dr from the tree that contains the test, runs the tests, and removes the binary. With -short it builds
// nothing, because dr would need real servers. It is for a TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(command.Main(m)) }
func Main(m interface{ Run() int }) int {
	flag.Parse()
	path = os.Getenv(Variable)
	if path != "" || testing.Short() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "dr-binary-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	path = filepath.Join(dir, "dr")
	build := exec.Command("go", "build", "-o", path, "github.com/etcd-dr/etcd-dr/cmd/dr")
	out, err := build.CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "build dr: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// Path returns the path of the binary.
func Path() string { return path }

// Run runs dr to its end, with an empty stdin and without DR_ and ETCDCTL_ variables except those in env.
func Run(t testing.TB, env []string, args ...string) Output {
	t.Helper()
	return Start(t, env, args...).Wait(t)
}

// Must is Run for a command that has to succeed; it returns stdout.
func Must(t testing.TB, env []string, args ...string) string {
	t.Helper()
	out := Run(t, env, args...)
	if out.Code != 0 {
		t.Fatalf("%s", out)
	}
	return out.Stdout
}

// Keygen creates an identity in a file, and returns its public key.
func Keygen(t testing.TB, file string) (recipient string) {
	t.Helper()
	return regexp.MustCompile("age1[0-9a-z]+").FindString(Must(t, nil, "keygen", "--to", file))
}

// Result runs dr with -o json, which has to succeed, and returns its result.
func Result[T any](t testing.TB, env []string, args ...string) (result T) {
	t.Helper()
	args = append(slices.Clone(args), "-o", "json")
	Output{Args: args, Stdout: Must(t, env, args...)}.Decode(t, &result)
	return result
}

// prepare returns a run of dr that has not begun. It ends with the test.
func prepare(t testing.TB, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(process.Environment("DR_", "ETCDCTL_"), env...)
	return cmd
}
