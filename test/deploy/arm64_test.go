package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReleaseForARM64 checks that the binary for arm64 runs dr demo with its children and scratch servers, under an
// emulator.
func TestReleaseForARM64(t *testing.T) {
	need(t, "qemu-aarch64-static")
	if os.Geteuid() != 0 {
		unavailable(t, "only root may register the emulator")
	}
	binary := filepath.Join(t.TempDir(), "dr")
	build := exec.CommandContext(t.Context(), "../../deploy/build.sh", binary, version)
	build.Env = append(os.Environ(), "GOARCH=arm64")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("deploy/build.sh: %v\n%s", err, out)
	}
	wantStatic(t, binary)
	said := output(t, "container/arm64.sh", binary, "demo")
	if strings.Count(said, "the same on all three") < 2 {
		t.Errorf("dr demo said\n%s", said)
	}
}
