package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/soak"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

// TestReleaseForARM64 checks that the binary for arm64 starts under an emulator.
func TestReleaseForARM64(t *testing.T) {
	said := onARM64(t, "version")
	if !strings.HasPrefix(said, "dr "+version+" ") {
		t.Errorf("dr version said\n%s", said)
	}
}

// TestSoakReleaseForARM64 checks that it runs dr demo with its children and scratch servers.
func TestSoakReleaseForARM64(t *testing.T) {
	soak.Only(t, "an emulator needs minutes for it")
	said := onARM64(t, "demo")
	if strings.Count(said, "the same on all three") < 2 {
		t.Errorf("dr demo said\n%s", said)
	}
}

// onARM64 builds dr for arm64, runs it under an emulator, and returns its output.
func onARM64(t *testing.T, args ...string) string {
	t.Helper()
	need(t, "qemu-aarch64-static")
	if os.Geteuid() != 0 {
		tools.Missing(t, "only root may register the emulator")
	}
	binary := filepath.Join(t.TempDir(), "dr")
	build := exec.CommandContext(t.Context(), "../../deploy/build.sh", binary, version)
	build.Env = append(os.Environ(), "GOARCH=arm64")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("deploy/build.sh: %v\n%s", err, out)
	}
	wantStatic(t, binary)
	return output(t, "container/arm64.sh", append([]string{binary}, args...)...)
}
