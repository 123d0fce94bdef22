package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

// TestUnitsUnderSystemd checks that the units, installed as documented, work under systemd with all of their
// restrictions.
func TestUnitsUnderSystemd(t *testing.T) { underSystemd(t, "units.sh") }

// TestRestoreUnderSystemd checks that dr restore --into systemd restores members that are units, and goes back.
func TestRestoreUnderSystemd(t *testing.T) { underSystemd(t, "restore.sh") }

// underSystemd runs a script under systemd in a container.
func underSystemd(t *testing.T, script string) {
	t.Helper()
	need(t, "/lib/systemd/systemd")
	if os.Geteuid() != 0 {
		tools.Missing(t, "only root may boot systemd in a container")
	}
	shared := t.TempDir()
	for from, name := range map[string]string{
		command.Path():                       "dr",
		tools.Path(t, "etcd-3.7", "etcd"):    "etcd",
		tools.Path(t, "etcd-3.7", "etcdctl"): "etcdctl",
		filepath.Join("container", script):   "script.sh",
		"container/lib.sh":                   "lib.sh",
	} {
		output(t, "install", "-m", "755", from, filepath.Join(shared, name))
	}
	output(t, "cp", "-r", "../../deploy", "../../docs", shared)

	cmd := exec.CommandContext(t.Context(), "container/boot.sh", shared)
	out, err := cmd.CombinedOutput()
	said, _ := os.ReadFile(filepath.Join(shared, "output"))
	t.Logf("%s%s", out, said)
	if err != nil || !strings.HasSuffix(string(said), "all of it was seen\n") {
		t.Errorf("the script in the container: %v", err)
	}
}
