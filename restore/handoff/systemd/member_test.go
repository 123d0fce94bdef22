package systemd

import (
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/handoff/node"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// unit is a unit without a connection to systemd.
var unit = &Unit{name: "etcd.service"}

// command returns a command line as systemd reports it.
func command(words ...string) [][]any { return [][]any{{words[0], words, false}} }

// TestStarted reads the process that a unit would start. A wrong data dir would be restored next to the one that etcd uses.
func TestStarted(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "etcd.conf")
	text := "# ETCD_DATA_DIR=/comment\n; ETCD_DATA_DIR=/comment\n\n ETCD_DATA_DIR=\"/from file\"\nETCD_NAME='m1'\nMORE=\"--wal-dir=/wal --name=\"\nno assignment\n"
	must(t, os.WriteFile(file, []byte(text), 0o600))
	environment := []string{"ETCD_DATA_DIR=/from-unit", "ETCD_WAL_DIR=/wal"}
	of := func(path string, optional bool) [][]any { return [][]any{{path, optional}} }
	for name, c := range map[string]struct {
		service map[string]any
		env     map[string]string
		args    []string
		dir     string
	}{
		"flags": {map[string]any{"ExecStart": command("/usr/bin/etcd", "--data-dir", "/data")}, nil, []string{"--data-dir", "/data"}, "/"},
		"in the working directory": {
			map[string]any{"ExecStart": command("etcd"), "WorkingDirectory": "!/var/lib/etcd"}, nil, nil, "/var/lib/etcd",
		},
		"variables": {
			map[string]any{"ExecStart": command("etcd"), "Environment": environment},
			map[string]string{"ETCD_DATA_DIR": "/from-unit", "ETCD_WAL_DIR": "/wal"}, nil, "/",
		},
		"a file overrides them": {
			map[string]any{"ExecStart": command("etcd"), "Environment": environment, "EnvironmentFiles": of(file, false)},
			map[string]string{"ETCD_DATA_DIR": "/from file", "ETCD_NAME": "m1", "ETCD_WAL_DIR": "/wal", "MORE": "--wal-dir=/wal --name="}, nil, "/",
		},
		"an optional file is missing": {
			map[string]any{"ExecStart": command("etcd"), "EnvironmentFiles": of(filepath.Join(dir, "missing"), true)}, nil, nil, "/",
		},
		"arguments from a variable": {
			map[string]any{"ExecStart": command("etcd", "$ARGS"), "Environment": []string{"ARGS=--data-dir /data"}},
			map[string]string{"ARGS": "--data-dir /data"}, []string{"--data-dir", "/data"}, "/",
		},
	} {
		p, err := unit.process(c.service)
		must(t, err)
		if !maps.Equal(p.Env, c.env) && len(p.Env)+len(c.env) > 0 || !slices.Equal(p.Args, c.args) || p.Dir != c.dir {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// TestUnknownUnitsAreRefused checks that a unit which does not run etcd itself, or whose settings cannot be read, is refused: its paths may not be
// those of this host.
func TestUnknownUnitsAreRefused(t *testing.T) {
	dir := t.TempDir()
	etcd := command("/usr/bin/etcd")
	for name, service := range map[string]map[string]any{
		"a script":            {"ExecStart": command("/usr/local/bin/start-etcd.sh")},
		"a container":         {"ExecStart": command("/usr/bin/docker", "run", "etcd")},
		"no command":          {},
		"two commands":        {"ExecStart": slices.Concat(etcd, etcd)},
		"an empty command":    {"ExecStart": [][]any{{"", []string{}, false}}},
		"a missing file":      {"ExecStart": etcd, "EnvironmentFiles": [][]any{{filepath.Join(dir, "missing"), false}}},
		"an unreadable file":  {"ExecStart": etcd, "EnvironmentFiles": [][]any{{dir, true}}},
		"another program ran": {"ExecStart": etcd, "MainPID": uint32(os.Getpid())},
	} {
		p, err := unit.process(service)
		if fault.KindOf(err) != fault.Refused {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

// TestRunningProcessCounts checks that the process that runs counts, not the unit, which may have been edited since its start.
func TestRunningProcessCounts(t *testing.T) {
	cat, err := exec.LookPath("cat")
	must(t, err)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	etcd := exec.Cmd{Path: cat, Args: []string{"etcd", "-"}, Env: []string{"ETCD_DATA_DIR=/in-use"}, Dir: dir}
	stdin, err := etcd.StdinPipe()
	must(t, err)
	must(t, etcd.Start())
	defer func() { _ = etcd.Wait() }()
	defer stdin.Close()
	service := map[string]any{"ExecStart": command("etcd", "--data-dir=/edited"), "MainPID": uint32(etcd.Process.Pid)}
	p, err := unit.process(service)
	if err != nil || p.Env["ETCD_DATA_DIR"] != "/in-use" || !slices.Equal(p.Args, []string{"-"}) || p.Dir != dir {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestOwner finds the owner of the new data. etcd exits on data of another user.
func TestOwner(t *testing.T) {
	self, err := user.LookupId("0")
	must(t, err)
	for name, c := range map[string]struct {
		user, group string
		want        *node.Owner
	}{
		"none":               {"", "", nil},
		"a name":             {self.Username, "", &node.Owner{UID: 0, GID: 0}},
		"its number":         {"0", "", &node.Owner{UID: 0, GID: 0}},
		"numbers of no user": {"54321", "65432", &node.Owner{UID: 54321, GID: 65432}},
		"a number alone":     {"54321", "", nil},
		"a dynamic user":     {"no-such-user", "no-such-group", nil},
	} {
		got := ownerOf(map[string]any{"User": c.user, "Group": c.group})
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestDropInKeepsTheUnitFromStarting checks that the drop-in has a condition that is never true, and that it goes with a reboot.
func TestDropInKeepsTheUnitFromStarting(t *testing.T) {
	if !strings.HasPrefix(unit.dropIn(), "/run/systemd/system/etcd.service.d/") || !strings.Contains(unit.never(), "\n[Unit]\nConditionPathExists=/run/etcd-dr/") {
		t.Errorf("%s: %s", unit.dropIn(), unit.never())
	}
	if unit.isClosed() {
		t.Error("a unit without the drop-in is closed")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
