// Package tools finds the programs that build.sh beside it has built for the tests.
package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Path returns where a program is, by its path in the directory of the tools. A test whose program has not been built
// is skipped; in CI it fails, where a skip would hide that nothing was tested.
func Path(t testing.TB, program ...string) string {
	t.Helper()
	dir, err := directory()
	if err != nil {
		Missing(t, "the directory of the tools is unknown: "+err.Error())
	}
	name := filepath.Join(program...)
	path := filepath.Join(dir, name)
	_, err = os.Stat(path)
	if err != nil {
		Missing(t, name+" is not built, run make tools: "+err.Error())
	}
	return path
}

// Missing skips a test because something is missing on this machine; in CI it fails.
func Missing(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// directory is what the Makefile exports, or what the build script says when a test is started without make.
var directory = sync.OnceValues(func() (string, error) {
	dir := os.Getenv("ETCD_DR_TOOLS")
	if dir != "" {
		return dir, nil
	}
	script, err := Source("test/tools/build.sh")
	if err != nil {
		return "", err
	}
	out, err := exec.Command(script, "--dir").Output()
	return strings.TrimSpace(string(out)), err
})

// Source returns the absolute path of a file of this project, given below its root. It searches the working directory and its parents:
// tests run in the folder of their package.
func Source(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, name)
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", err
		}
		dir = parent
	}
}

// CopyTree copies the files of this project that git tracks, and the untracked ones that it does not ignore, into a directory.
func CopyTree(t testing.TB, to string) {
	t.Helper()
	module, err := Source("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	const script = `mkdir -p "$1" && git -c safe.directory='*' ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$1"`
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", script, "bash", to)
	cmd.Dir = filepath.Dir(module)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("copy the tree: %v\n%s", err, out)
	}
}
