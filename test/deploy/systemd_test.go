package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const units = "../../deploy/systemd"

// mostExposed is what systemd-analyze may find of 10 at most: what is left is the network, and that there is no root of its own.
const mostExposed = "16"

// systemd itself reads the units, and says how much they leave open.
func TestUnits(t *testing.T) {
	need(t, "systemd-analyze")
	files, err := filepath.Glob(filepath.Join(units, "*.service"))
	if err != nil || len(files) != 2 {
		t.Fatalf("units: %q, %v", files, err)
	}
	for _, file := range files {
		// verify wants the program to be there, and security wants the name of a unit.
		program, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		unit := writeFile(t, filepath.Base(file), strings.ReplaceAll(readFile(t, file), "/usr/local/bin/dr", program))
		if said := output(t, "systemd-analyze", "verify", unit); said != "" {
			t.Errorf("%s: %s", filepath.Base(file), said)
		}
		output(t, "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold="+mostExposed, unit)
	}
}

var setting = regexp.MustCompile(`(?m)^([A-Za-z]+)=(.*)$`)

// What units start is what dr has, and whoever stops it waits as long as dr may need.
func TestUnitsStartWhatDrHas(t *testing.T) {
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
