package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The flags of etcdctl snapshot save and etcdutl snapshot restore, including global ones, of etcd 3.4 to 3.7. dr accepts a flag
// with an empty value here; it refuses any other with an error that contains the value.
var (
	etcdctlFlags = map[string]string{
		"endpoints": "", "cacert": "", "cert": "", "key": "", "insecure-skip-tls-verify": "", "user": "", "dial-timeout": "",
		"command-timeout": "", "discovery-srv": "", "discovery-srv-name": "", "insecure-discovery": "", "write-out": "", "help": "",
		"password": "--password-file", "auth-jwt-token": "--user", "insecure-transport": "http:// or https://",
		"keepalive-time": "leave it out", "keepalive-timeout": "leave it out", "max-request-bytes": "leave it out",
		"max-recv-bytes": "leave it out", "debug": "-o json", "hex": "-o json",
	}
	etcdutlFlags = map[string]string{
		"data-dir": "", "wal-dir": "", "initial-cluster": "", "initial-cluster-token": "", "initial-advertise-peer-urls": "", "name": "",
		"skip-hash-check": "", "bump-revision": "", "mark-compacted": "", "write-out": "", "help": "",
		"initial-memory-map-size": "leave it out", "timeout": "leave it out",
	}
)

func TestEveryFlagOfEtcdctlAndEtcdutl(t *testing.T) {
	for verb, flags := range map[string]map[string]string{"backup": etcdctlFlags, "restore": etcdutlFlags} {
		root := (&app{world: world{getenv: func(string) string { return "" }}}).root()
		cmd, _, err := root.Find([]string{verb})
		if err != nil {
			t.Fatal(err)
		}
		cmd.InitDefaultHelpFlag()
		for flag, words := range flags {
			if words == "" {
				if cmd.Flags().Lookup(flag) == nil {
					t.Errorf("dr %s has no --%s", verb, flag)
				}
				continue
			}
			out := dr(t, nil, verb, "--"+flag, "hunter2")
			if out.code != exitUsage || !strings.Contains(out.stderr, "--"+flag+": ") || !strings.Contains(out.stderr, words) {
				t.Errorf("dr %s --%s: exit code %d, want %q in %q", verb, flag, out.code, words, out.stderr)
			}
			if strings.Contains(out.stdout+out.stderr, "hunter2") {
				t.Errorf("dr %s --%s prints its value", verb, flag)
			}
		}
	}
}

func TestWriteOut(t *testing.T) {
	for args, code := range map[string]int{
		"-w json": exitDone, "-w table": exitDone, "-w simple": exitDone, "--write-out=json": exitDone, "-o simple": exitDone,
		"-w fields": exitUsage, "-w protobuf": exitUsage,
	} {
		out := dr(t, nil, append([]string{"version"}, strings.Fields(args)...)...)
		if out.code != code || code == exitUsage && !strings.Contains(out.stderr, "jq") ||
			strings.HasPrefix(out.stdout, "{") != strings.HasSuffix(args, "json") {
			t.Errorf("dr version %s: %d\n%s%s", args, out.code, out.stdout, out.stderr)
		}
	}
}

// TestADataDirAlone checks that --data-dir alone restores the single member default, as in etcdutl.
func TestADataDirAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "snapshot.db")
	err := os.WriteFile(file, []byte("x"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	plan := func(args ...string) output {
		return dr(t, nil, append([]string{"restore", "--from-file", file, "--dry-run", "--data-dir", filepath.Join(dir, "new")}, args...)...)
	}
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"", 0, "default=http://localhost:2380"},
		{"--initial-advertise-peer-urls http://10.0.0.1:2380", 0, "default=http://10.0.0.1:2380"},
		{"--initial-cluster m1=http://10.0.0.1:2380", 0, "new, member m1"},
		{"--initial-cluster m1=http://10.0.0.1:2380,m2=http://10.0.0.2:2380", 2, "choose it with --name (m1="},
		{"--name m1", 2, "--initial-cluster"},
		{"--mark-compacted --bump-revision 5", 0, "continue 5 after"},
		{"--mark-compacted", 2, "requires --bump-revision N"},
		{"--mark-compacted --bump-revision 0", 2, "requires --bump-revision N"},
	} {
		out := plan(strings.Fields(test.args)...)
		if out.code != test.code || !strings.Contains(out.stdout+out.stderr, test.says) {
			t.Errorf("%s: exit code %d, want %q in\n%s%s", test.args, out.code, test.says, out.stdout, out.stderr)
		}
	}
}

// TestStatusOfAFile checks dr status FILE, which replaces etcdutl snapshot status, and its errors for other files.
func TestStatusOfAFile(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	err := os.WriteFile(garbage, make([]byte, 5000), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{filepath.Join(dir, "none")}, exitUsage, "no such file"},
		{[]string{dir}, exitUsage, "is not a regular file: name a snapshot"},
		{[]string{garbage}, exitFinding, "damaged"},
		{[]string{garbage, garbage}, exitUsage, "at most one file"},
		{[]string{garbage, "--repo", "file://" + dir}, exitUsage, "--repo cannot be used with it"},
	} {
		out := dr(t, nil, append([]string{"status"}, test.args...)...)
		if out.code != test.code || !strings.Contains(out.stderr, test.says) {
			t.Errorf("dr status %v: exit code %d, want %q in %q", test.args, out.code, test.says, out.stderr)
		}
	}
}
