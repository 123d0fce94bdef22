package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// withIdentity returns env with a key that opens backups.
func withIdentity(t *testing.T, env map[string]string) map[string]string {
	t.Helper()
	identity, _, err := seal.Generate()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.txt")
	err = os.WriteFile(path, []byte(identity), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	env["DR_IDENTITY"] = path
	return env
}

// TestPlainBackupsAreRefusedWithAKey checks that with a key, unencrypted backups are refused unless a flag allows them.
func TestPlainBackupsAreRefusedWithAKey(t *testing.T) {
	env, ids := filled(t, 2, sign.Key{})
	plan := filepath.Join(t.TempDir(), "plan.json")
	members := []string{"--initial-cluster", "m1=http://127.0.0.1:2380"}
	wantDone(t, dr(t, env, append([]string{"restore", "--plan-out", plan}, members...)...)) // without a key
	env = withIdentity(t, env)
	dir := t.TempDir()
	for _, args := range [][]string{
		append([]string{"restore", "--dry-run"}, members...),
		append([]string{"restore", "latest", "--output-dir", dir}, members...),
		append([]string{"restore", string(ids[1]), "--dry-run"}, members...),
		{"restore", "--plan", plan, "--output-dir", dir},
		{"extract", "latest", "--key", "a"},
		{"diff", "latest", string(ids[0]), "--prefix", "/"},
		{"fetch", "latest", "--to", filepath.Join(dir, "s.db")},
		{"find", "--key", "a"},
		{"drill"},
		{"verify", "--level", "hashed"},
		{"verify", "--level", "hashed", "--all"},
	} {
		out := dr(t, env, args...)
		named := strings.Contains(out.stderr, string(ids[0])) || strings.Contains(out.stderr, string(ids[1]))
		if out.code != exitRefused || !named || !strings.Contains(out.stderr, "--allow-plain") {
			t.Errorf("dr %q: exit code %d, %s", args, out.code, out.stderr)
		}
	}
	out := wantDone(t, dr(t, env, append([]string{"restore", "--dry-run", "--allow-plain"}, members...)...))
	if !strings.Contains(out, "unsigned: --trust was not given") || !strings.Contains(out, string(ids[1])) {
		t.Errorf("the plan is\n%s", out)
	}
	skipped := dr(t, env, append([]string{"restore", "--dry-run", "--skip-plain"}, members...)...)
	if skipped.code != exitFinding {
		t.Errorf("every backup is plain, and without them: exit code %d, %s", skipped.code, skipped.stderr)
	}
	both := dr(t, env, "restore", "--dry-run", "--skip-plain", "--allow-plain")
	if both.code != exitUsage {
		t.Errorf("both flags: exit code %d, %s", both.code, both.stderr)
	}
}

// TestPlainBackupsAreTakenOrLeftOut checks both flags where no single backup is asked for.
func TestPlainBackupsAreTakenOrLeftOut(t *testing.T) {
	env, _ := filled(t, 2, sign.Key{})
	env = withIdentity(t, env)
	for _, args := range [][]string{{"find", "--key", "a"}, {"drill"}, {"verify", "--level", "hashed", "--all"}} {
		out := dr(t, env, append(args, "--allow-plain")...)
		if out.code == exitRefused || strings.Contains(out.stderr, "not encrypted") {
			t.Errorf("dr %q --allow-plain: exit code %d, %s", args, out.code, out.stderr)
		}
		out = dr(t, env, append(args, "--skip-plain")...)
		if out.code != exitFinding || strings.Contains(out.stdout, "hashed") {
			t.Errorf("dr %q --skip-plain: exit code %d, %s%s", args, out.code, out.stdout, out.stderr)
		}
	}
}

// TestEmptyVariablesAreRefused checks that a variable with an empty value is refused: it must not switch off encryption or signatures.
func TestEmptyVariablesAreRefused(t *testing.T) {
	for name := range protectingFlags {
		t.Setenv(name, "")
		got := getenv(name)
		if got == "" {
			t.Fatalf("%s is set and empty, and looks as if it were not set", name)
		}
		env := map[string]string{"DR_REPO": "file://" + t.TempDir(), "DR_CLUSTER": "prod", name: getenv(name)}
		for _, verb := range []string{"backup", "restore"} {
			command, _, err := (&app{world: world{getenv: os.Getenv}}).root().Find([]string{verb})
			if err != nil || command.Flags().Lookup(protectingFlags[name]) == nil {
				continue
			}
			out := dr(t, env, verb)
			if out.code != exitUsage || !strings.Contains(out.stderr, name+" is set to an empty value") {
				t.Errorf("%s= dr %s: exit code %d, %s", name, verb, out.code, out.stderr)
			}
		}
	}
}
