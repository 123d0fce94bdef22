package main

import (
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/plan"
)

// TestFindBadInput checks that bad input gets the right exit code and message before the repository is read.
func TestFindBadInput(t *testing.T) {
	to := []string{"--repo", "file://" + t.TempDir(), "--cluster", "prod"}
	for _, test := range []struct {
		args string
		says string
	}{
		{"find", "use --key KEY, --prefix PREFIX or --namespace NAME"},
		{"find --key a --prefix b", "use one of them"},
		{"find --prefix a --namespace b", "use one of them"},
		{"find --namespace A/b", "lower case"},
		{"extract --namespace a -o json", "use --key or --prefix"},
		{"find --key=", "--key must not be empty"},
		{"find --key a --from yesterdayish", "--from"},
		{"find --key a --from 2026-11-21T10:00:00Z --to 2026-11-21T09:00:00Z", "ends before it begins"},
		{"find --key a --from-revision 7 --to-revision 6", "ends before it begins"},
		{"find --key a --to-revision -6", "at least 1"},
		{"find --key a x", `unexpected "x"`},
		{"extract", "use --key KEY, --prefix PREFIX or --namespace NAME"},
		{"extract --key a -o table", "use yaml, json or raw"},
		{"extract --key a --to-revision 3 --before-revision 3", "use only one"},
		{"extract --key a --before-revision 1", "at least 2"},
		{"diff r1", "expected two points, got 1"},
		{"diff r0 latest", `"r0" is not a point`},
		{"diff latest whenever", `"whenever" is not a point`},
	} {
		out := dr(t, nil, append(strings.Fields(test.args), to...)...)
		if out.code != exitUsage || !strings.Contains(out.stderr, test.says) || out.stdout != "" {
			t.Errorf("dr %s: code %d, want %q:\n%s%s", test.args, out.code, test.says, out.stdout, out.stderr)
		}
	}
}

func TestParsePoint(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]plan.Target{
		"latest": {}, "r4711": {Revision: 4711}, "2h ago": {Time: now.Add(-2 * time.Hour)},
		"2026-11-21T10:00:00Z":              {Time: now.Add(-2 * time.Hour)},
		"20261121T092433Z-0000000000001267": {Backup: "20261121T092433Z-0000000000001267"},
	} {
		got, err := parsePoint(text, now)
		if err != nil || !got.Time.Equal(want.Time) || got.Revision != want.Revision || got.Backup != want.Backup {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// TestKeysAreSafeOnATerminal checks that control characters in a key are escaped.
func TestKeysAreSafeOnATerminal(t *testing.T) {
	for key, want := range map[string]string{
		"/plain": "/plain", "\x1b[2J": `"\x1b[2J"`, "a\nb": `"a\nb"`, "\xff": `"\xff"`,
		"/registry/pods/prod/web":  "/registry/pods/prod/web (Pod prod/web)",
		"/registry/pods/p/\x1b[2J": `"/registry/pods/p/\x1b[2J" ("Pod p/\x1b[2J")`,
	} {
		got := keyText(convert.Key(key))
		if got != want {
			t.Errorf("%q is shown as %s, want %s", key, got, want)
		}
	}
}

// TestFindWithoutATrace checks that find does not claim that a key never existed if parts of the history are missing.
func TestFindWithoutATrace(t *testing.T) {
	for unseen, want := range map[int]string{0: "it did not exist at any time that the repository covers", 2: "may have existed"} {
		var stdout strings.Builder
		a := &app{world: world{stdout: &stdout}}
		err := (&findOutput{app: a, keys: selectionFlags{key: "/a"}}).print(document.Find{Unseen: unseen})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(stdout.String(), want) || unseen > 0 && strings.Contains(stdout.String(), "did not exist") {
			t.Errorf("with %d parts unseen it prints\n%s", unseen, stdout.String())
		}
	}
}
