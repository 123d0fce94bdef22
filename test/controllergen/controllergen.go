// Package controllergen runs controller-gen on the package of a test.
package controllergen

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/golden"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

const deepCopies = "zz_generated.deepcopy.go"

// Definitions generates the deep copies of the types in the current directory, which are a golden file, and the definitions of their custom
// resources: it returns the text of each by the name of its file. crd is the generator with its options, such as crd:maxDescLen=0.
func Definitions(t *testing.T, crd string) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command(tools.Path(t, "controller-gen", "controller-gen"),
		"object", crd, "paths=.", "output:crd:dir="+dir, "output:object:dir="+dir).CombinedOutput()
	if err != nil {
		t.Fatalf("controller-gen: %v: %s", err, out)
	}
	golden.Want(t, deepCopies, read(t, filepath.Join(dir, deepCopies)))
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no definition was generated: %v", err)
	}
	all := map[string][]byte{}
	for _, file := range files {
		all[filepath.Base(file)] = read(t, file)
	}
	return all
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
