package coreos_test

import (
	"path/filepath"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/controllergen"
	"github.com/etcd-dr/etcd-dr/test/golden"
)

// TestGenerated runs controller-gen: its files are those of the types. The definitions contain no descriptions: those of a pod's fields are
// longer than all else.
func TestGenerated(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a tool")
	}
	for file, text := range controllergen.Definitions(t, "crd:maxDescLen=0") {
		for _, folder := range []string{"../../deploy/coreos/crds", "../controller/dropin/definitions"} {
			golden.Want(t, filepath.Join(folder, file), text)
		}
	}
}
