package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const units = "../../deploy/systemd"

// mostExposed is the largest accepted exposure by systemd-analyze, in tenths of its scale from 0 to 10. The rest is the
// network, and that the units have no root directory of their own.
const mostExposed = "16"

// TestUnits checks the units with systemd itself, including their exposure.
func TestUnits(t *testing.T) {
	need(t, "systemd-analyze")
	files, err := filepath.Glob(filepath.Join(units, "*.service"))
	if err != nil || len(files) != 2 {
		t.Fatalf("units: %q, %v", files, err)
	}
	for _, file := range files {
		// verify needs the program to exist, and security needs the name of a unit.
		program, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		unit := writeFile(t, filepath.Base(file), strings.ReplaceAll(readFile(t, file), "/usr/local/bin/dr", program))
		said := output(t, "systemd-analyze", "verify", unit)
		if said != "" {
			t.Errorf("%s: %s", filepath.Base(file), said)
		}
		output(t, "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold="+mostExposed, unit)
	}
}

var setting = regexp.MustCompile(`(?m)^([A-Za-z]+)=(.*)$`)

// TestUnitsStartExistingVerbs checks that dr has the commands in the units, and that systemd waits long enough when it
// stops them.
func TestUnitsStartExistingVerbs(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the binary")
	}
	for _, name := range []string{"etcd-dr-serve.service", "etcd-dr-archive.service"} {
		settings := map[string]string{}
		for _, m := range setting.FindAllStringSubmatch(readFile(t, filepath.Join(units, name)), -1) {
			settings[m[1]] = m[2]
		}
		if settings["TimeoutStopSec"] != "30" || settings["User"] == "" || settings["MemoryMax"] == "" {
			t.Errorf("%s: %q", name, settings)
		}
		dr().knows(t, name, strings.TrimPrefix(settings["ExecStart"], "/usr/local/bin/"))
	}
}
