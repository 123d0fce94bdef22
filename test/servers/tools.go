package servers

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Versions are the minor versions of etcd that the product serves, oldest first.
var Versions = []string{"3.4", "3.5", "3.6", "3.7"}

// Tool returns the path of a program of one minor version: etcd, etcdctl or etcdutl (which 3.4 does not have). A test whose tool has not
// been built is skipped; in CI it fails.
func Tool(t testing.TB, version, name string) string {
	t.Helper()
	if !slices.Contains(Versions, version) {
		t.Fatalf("there is no etcd %q here, only %s", version, strings.Join(Versions, ", "))
	}
	if version == "3.4" && name == "etcdutl" {
		t.Fatal("etcd 3.4 has no etcdutl; its etcdctl does that work")
	}
	dir, err := toolsDir()
	if err != nil {
		unavailable(t, "the directory of the tools is unknown: "+err.Error())
	}
	path := filepath.Join(dir, "etcd-"+version, name)
	if _, err := os.Stat(path); err != nil {
		unavailable(t, name+" "+version+" is not built, run make tools: "+err.Error())
	}
	return path
}

// unavailable ends a test that cannot run here. In CI a skip would hide that nothing was tested.
func unavailable(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// toolsDir is what the Makefile exports, or what the build script says when a test is started without make.
var toolsDir = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("ETCD_DR_TOOLS"); dir != "" {
		return dir, nil
	}
	script, err := findUpwards(filepath.Join("test", "tools", "build.sh"))
	if err != nil {
		return "", err
	}
	out, err := exec.Command(script, "--dir").Output()
	return strings.TrimSpace(string(out)), err
})

// findUpwards looks for a file in the working directory and its parents: tests run in the folder of their package.
func findUpwards(name string) (string, error) {
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
