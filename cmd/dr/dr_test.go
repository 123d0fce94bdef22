package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// TestMain makes the test binary serve as its own child process, as dr does, and as dr itself for tests of signals.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == child.Argument || os.Getenv(asDR) != "" {
		main()
	}
	os.Exit(m.Run())
}

type output struct {
	stdout, stderr string
	code           int
}

func dr(t *testing.T, env map[string]string, args ...string) output {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, world{strings.NewReader(""), &stdout, &stderr, func(name string) string { return env[name] }})
	return output{stdout.String(), stderr.String(), code}
}

// TestBadInput checks that bad input gets one line with the problem and the remedy, the right exit code, and changes nothing.
func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		err := os.WriteFile(path, []byte(content), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	garbage := file("garbage", "no key")
	_, publicKey, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	repo := "file://" + t.TempDir()
	to := []string{"--repo", repo, "--cluster", "prod"}
	members := "a=http://127.0.0.1:1,a=http://127.0.0.1:2"
	plain := file("snapshot.db", strings.Repeat("x", 512+32))

	for _, test := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"an unknown verb", []string{"bakcup"}, 2, `unknown verb "bakcup"`},
		{"an unknown flag", []string{"list", "--repos", repo}, 2, "unknown flag: --repos"},
		{"an unknown format", append([]string{"list", "-o", "yaml"}, to...), 2, "use table or json"},
		{"no repository", []string{"list"}, 2, "--repo file:///path or DR_REPO"},
		{"an absent directory", []string{"list", "--repo", "file://" + filepath.Join(dir, "none")}, 2, "there is no directory"},
		{"no cluster", []string{"show", "--repo", repo}, 2, "--cluster or DR_CLUSTER"},
		{"a malformed cluster", []string{"show", "--repo", repo, "--cluster", "a/b"}, 2, "letters, digits"},
		{"a relative URL", []string{"list", "--repo", "file://repo"}, 2, "three slashes"},
		{"an unknown store", []string{"list", "--repo", "ftp://host/dir"}, 2, "use file:///path"},
		{"credentials in the URL", []string{"list", "--repo", "file://me:hunter2@host/dir"}, 2, "credentials"},
		{"an empty repository", []string{"list", "--repo", repo}, 3, "is empty"},
		{"an unknown cluster", append([]string{"show"}, to...), 3, "check --repo and --cluster"},
		{"an unknown backup", append([]string{"show", "20200101T000000Z-0000000000000001"}, to...), 3, "dr list shows"},
		{"a malformed backup", append([]string{"show", "newest"}, to...), 2, "20261121T092433Z-000000000000abcd"},
		{"two backups", append([]string{"show", "latest", "latest"}, to...), 2, "at most one backup"},

		{"credentials that say nothing", append([]string{"list", "--credentials", ""}, to...), 2, "--credentials is given without a value"},
		{"credentials that are missing", []string{"list", "--repo", "s3://bucket", "--credentials", filepath.Join(dir, "none")}, 2, "check the path"},
		{"a trust that says nothing", append([]string{"list", "--trust", ""}, to...), 2, "--trust is given without a value"},
		{"a signing key that says nothing", append([]string{"backup", "--sign-key", ""}, to...), 2, "--sign-key is given"},
		{"a trust without a key", append([]string{"backup", "--trust", publicKey}, to...), 2, "readers would ignore"},
		{"a lock that says nothing", append([]string{"backup", "--lock", ""}, to...), 2, "--lock is given"},
		{"a malformed trust", append([]string{"list", "--trust", garbage}, to...), 2, "not a minisign public key"},
		{"a malformed signing key", append([]string{"verify", "--sign-key", garbage}, to...), 2, "not a minisign secret key"},
		{"a malformed lock", append([]string{"archive", "--data-dir", dir, "--endpoints", "http://x:1", "--lock", "30d:for-ever"}, to...), 2, "30d:compliance"},
		{"no locks here", append([]string{"copy", "--lock", "1h", "--from", repo, "--to", repo}, to[2:]...), 3, "not in the repository"},
		{"a malformed time", append([]string{"list", "--as-of", "yesterday"}, to...), 2, "2h ago"},
		{"no past here", append([]string{"list", "--as-of", "2h ago"}, to...), 1, "keeps no versions"},
		{"a limit on the member's stream", append([]string{"backup", "--limit", "1MiB/s"}, to...), 2, "--spool"},
		{"a limit of next to nothing", append([]string{"fetch", "--limit", "3"}, to...), 2, "20MiB/s"},
		{"no requests at all", append([]string{"fetch", "--parallel", "0"}, to...), 2, "--parallel must be from 1"},

		{"no configuration", []string{"serve"}, 2, "--config or DR_CONFIG"},
		{"an absent configuration", []string{"serve", "--config", "/none"}, 2, "/none: no such file"},
		{"a malformed configuration", []string{"config", "check", "--config", garbage}, 2, "garbage:1: expected a mapping, got a string"},
		{"an unknown verb of config", []string{"config", "chekc"}, 2, `unknown verb "config chekc"`},
		{"a status of nothing", []string{"status"}, 2, "--repo file:///path or DR_REPO"},
		{"a status of two things", []string{"status", "--repo", repo, "--config", garbage}, 2, "cannot be combined with --config or --check"},
		{"a check without endpoints", []string{"status", "--check"}, 2, "pass --config or set DR_CONFIG"},

		{"no endpoint", append([]string{"backup", "--endpoints", ""}, to...), 2, "--endpoints or ETCDCTL_ENDPOINTS"},
		{"a malformed endpoint", append([]string{"backup", "--endpoints", "htp://x:1"}, to...), 2, "https:// or http://"},
		{"a dead endpoint", append([]string{"backup", "--endpoints", "http://127.0.0.1:1"}, to...), 1, "connection refused"},
		{"a password in argv", append([]string{"backup", "--user", "root:hunter2"}, to...), 2, "--password-file"},
		{"no password", append([]string{"backup", "--user", "root"}, to...), 2, "--password-file or ETCDCTL_PASSWORD"},
		{"an unreadable certificate", append([]string{"backup", "--cert", "/none", "--key", "/none"}, to...), 2, "/none"},
		{"a malformed recipient", append([]string{"backup", "--recipient", "age1x"}, to...), 2, "recipient"},
		{"an unreadable recipients file", append([]string{"backup", "--recipients-file", "/none"}, to...), 2, "/none"},
		{"a passphrase with a recipient", append([]string{"backup", "--passphrase-file", garbage, "--recipient",
			"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"}, to...), 2, "no other recipient"},

		{"a malformed level", append([]string{"verify", "--level", "tested"}, to...), 2, "stored, hashed, opened or booted"},
		{"all, and one", append([]string{"verify", "--all", "latest"}, to...), 2, "--all with a backup"},
		{"an assertion of nothing", append([]string{"drill", "--assert", "key="}, to...), 2, "key=/registry/namespaces/default"},
		{"a malformed assertion", append([]string{"drill", "--assert", "prefix=/a/:many"}, to...), 2, "at least 1"},
		{"a niceness that is none", append([]string{"drill", "--nice", "20"}, to...), 2, "from 0 to 19"},
		{"too little memory", append([]string{"drill", "--memory-limit", "1MiB"}, to...), 2, "at least 64 MiB"},
		{"a lineage of nothing", append([]string{"drill", "--lineage", "a"}, to...), 2, "--to or --to-revision"},
		{"the newest, and a point", append([]string{"drill", "latest", "--to-revision", "7"}, to...), 2, "latest with --to"},
		{"a drill in the future", append([]string{"drill", "--to", "2999-01-01T00:00:00Z"}, to...), 2, "in the future"},
		{"a drill of nothing", append([]string{"drill"}, to...), 3, "take one with dr backup"},
		{"an unreadable key", append([]string{"verify", "--identity", "/none"}, to...), 2, "/none"},
		{"a file that is no key", append([]string{"verify", "--identity", garbage}, to...), 2, "AGE-SECRET-KEY-1"},
		{"nowhere to fetch to", append([]string{"fetch"}, to...), 2, "--to snapshot.db"},
		{"nowhere for a key", []string{"keygen"}, 2, "--to key.txt"},
		{"a key over another file", []string{"keygen", "--to", garbage}, 2, "exists"},

		{"a policy that keeps nothing", append([]string{"prune"}, to...), 2, "it keeps nothing"},
		{"a policy below zero", append([]string{"prune", "--keep-last", "-1"}, to...), 2, "is negative"},
		{"a malformed span", append([]string{"prune", "--keep-within", "a while"}, to...), 2, "--keep-within a while: use a form like 14d"},
		{"a window of nothing", append([]string{"prune", "--window", "0s"}, to...), 2, "--window 0s"},
		{"a malformed size", append([]string{"prune", "--max-size", "much"}, to...), 2, "50GiB"},
		{"an unknown zone", append([]string{"prune", "--keep-last", "1", "--zone", "Mars/Base"}, to...), 2, "Europe/Berlin"},
		{"no grace", append([]string{"prune", "--keep-last", "1", "--grace", "0s"}, to...), 2, "--grace"},
		{"nothing to prune", append([]string{"prune", "--keep-last", "1"}, to...), 3, "check --repo and --cluster"},
		{"nothing to pin", append([]string{"pin"}, to...), 2, "expected one backup"},
		{"an unknown backup to pin", append([]string{"pin", "20200101T000000Z-0000000000000001"}, to...), 3, "dr list shows"},
		{"an unknown backup to unpin", append([]string{"unpin", "20200101T000000Z-0000000000000001"}, to...), 3, "dr list shows"},

		{"duplicate members", append([]string{"restore", "--initial-cluster", members}, to...), 2, "two members are called a"},
		{"a malformed member", append([]string{"restore", "--initial-cluster", "http://127.0.0.1:1"}, to...), 2, "name=url"},
		{"an absent file", []string{"restore", "--from-file", filepath.Join(dir, "none")}, 2, "no such file"},
		{"a file without members", []string{"restore", "--from-file", plain, "--output-dir", filepath.Join(dir, "out")}, 2,
			"--initial-cluster"},
		{"a file that is no snapshot", []string{"restore", "--from-file", plain, "--initial-cluster", "a=http://127.0.0.1:1",
			"--output-dir", filepath.Join(dir, "out")}, 3, "does not match the digest"},
		{"nowhere to restore to", []string{"restore", "--from-file", plain, "--initial-cluster", "a=http://127.0.0.1:1"}, 2,
			"--output-dir"},
		{"hosts without a plan", []string{"restore", "--from-file", plain, "--initial-cluster", "a=http://127.0.0.1:1,b=http://127.0.0.1:2", "--into", "command",
			"--name", "a", "--data-dir", filepath.Join(dir, "out"), "--stop-command", "false", "--start-command", "false", "--dry-run"}, 2, "all hosts need the same plan"},
		{"without this host", []string{"restore", "--from-file", plain, "--initial-cluster", "a=http://127.0.0.1:1", "--into", "command", "--name", "a",
			"--data-dir", filepath.Join(dir, "out"), "--stop-command", "false", "--start-command", "false", "--dry-run", "--without", "a"}, 2, "runs that member: omit it"},
		{"without a stranger", []string{"restore", "--from-file", plain, "--initial-cluster", "a=http://127.0.0.1:1", "--into", "command", "--name", "a",
			"--data-dir", filepath.Join(dir, "out"), "--stop-command", "false", "--start-command", "false", "--dry-run", "--without", "z"}, 2, "the plan has no such member"},
		{"a name that is no member", []string{"restore", "--from-file", plain, "--initial-cluster", "a=http://127.0.0.1:1",
			"--name", "b", "--data-dir", filepath.Join(dir, "out")}, 2, "not among the members"},
		{"another own URL", []string{"restore", "--from-file", plain, "--initial-cluster", "a=http://127.0.0.1:1", "--name", "a",
			"--initial-advertise-peer-urls", "http://127.0.0.1:2", "--data-dir", filepath.Join(dir, "out")}, 2, "would advertise"},
		{"a malformed bump", []string{"restore", "--from-file", plain, "--initial-cluster", "a=http://127.0.0.1:1",
			"--bump-revision", "-1", "--output-dir", filepath.Join(dir, "out")}, 2, "--bump-revision"},
		{"a full directory", []string{"restore", "--from-file", plain, "--initial-cluster", "a=http://127.0.0.1:1",
			"--output-dir", dir}, 4, "is not empty"},
		{"no plan", []string{"restore", "--plan", "/none"}, 2, "/none"},
		{"a file that is no plan", []string{"restore", "--plan", garbage}, 2, "no plan of dr"},
		{"a plan and what it decides", []string{"restore", "--plan", garbage, "--bump-revision", "0"}, 2, "--plan already sets"},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := tree(t, dir)
			out := dr(t, nil, test.args...)
			if out.code != test.code {
				t.Errorf("exit code %d, want %d\n%s", out.code, test.code, out.stderr)
			}
			line := errorLine(out.stderr)
			if !strings.Contains(line, test.says) {
				t.Errorf("it says %q, want %q in it\n%s", line, test.says, out.stderr)
			}
			if strings.Contains(out.stdout+out.stderr, "hunter2") {
				t.Errorf("the secret is in the output:\n%s%s", out.stdout, out.stderr)
			}
			after := tree(t, dir)
			if after != before {
				t.Errorf("files before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// errorLine returns the line with the error.
func errorLine(stderr string) string {
	var found string
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "dr: ") && !strings.Contains(line, "WARNING") && !strings.Contains(line, "dr: see ") {
			found += line
		}
	}
	return strings.TrimSuffix(found, "\n")
}

// tree returns the names of the files below dir.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, "\n")
}

func TestAnErrorIsTheLastLineOfJSON(t *testing.T) {
	out := dr(t, nil, "verify", "-o", "json", "--repo", "file://"+t.TempDir(), "--cluster", "prod")
	var line document.Line
	err := json.Unmarshal([]byte(out.stdout), &line)
	if err != nil || line.Error == nil {
		t.Fatalf("%v: %q", err, out.stdout)
	}
	if line.Error.ExitCode != 3 || out.code != 3 || !strings.Contains(out.stderr, line.Error.Message) {
		t.Errorf("exit code %d, JSON %+v, stderr %q", out.code, line.Error, out.stderr)
	}
}

func TestVariablesStandInForFlags(t *testing.T) {
	env := map[string]string{"DR_REPO": "file://" + t.TempDir(), "DR_CLUSTER": "prod"}
	out := dr(t, env, "show")
	if out.code != 3 || !strings.Contains(out.stderr, "cluster prod") {
		t.Errorf("with variables: %d, %q", out.code, out.stderr)
	}
	out = dr(t, env, "show", "--cluster", "other")
	if !strings.Contains(out.stderr, "cluster other") {
		t.Errorf("a flag goes first: %q", out.stderr)
	}
}

func TestEveryVerbHasHelp(t *testing.T) {
	for _, cmd := range (&app{world: world{getenv: func(string) string { return "" }}}).root().Commands() {
		if cmd.Hidden {
			continue
		}
		out := dr(t, nil, cmd.Name(), "--help")
		if out.code != 0 || !strings.Contains(out.stdout, "Usage:") || cmd.Short == "" {
			t.Errorf("%s: exit code %d\n%s", cmd.Name(), out.code, out.stdout)
		}
	}
	out := dr(t, nil)
	if out.code != 0 || !strings.Contains(out.stdout, "Exit codes:") {
		t.Errorf("dr alone: %d\n%s", out.code, out.stdout)
	}
	out = dr(t, nil, "completion", "bash")
	if out.code != 0 || !strings.Contains(out.stdout, "bash completion") {
		t.Errorf("completion: %d", out.code)
	}
}

func TestKeygen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.txt")
	out := dr(t, nil, "keygen", "--to", path)
	if out.code != 0 || !strings.HasPrefix(out.stdout, "age1") {
		t.Fatalf("exit code %d: %s%s", out.code, out.stdout, out.stderr)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info, err)
	}
	content, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(content), strings.TrimSpace(out.stdout)) ||
		!strings.Contains(string(content), "\nAGE-SECRET-KEY-1") || strings.Contains(out.stdout, "SECRET") {
		t.Errorf("content %q, stdout %q, %v", content, out.stdout, err)
	}
}

func TestInterruptedIs130(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code := exitCode(ctx, context.Canceled)
	if code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
}

func TestShellLineCanBePasted(t *testing.T) {
	got := shellLine([]string{"etcd", "--name", "a b", "--data-dir", "/it's"})
	want := "etcd \\\n    --name 'a b' \\\n    --data-dir '/it'\"'\"'s'"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
