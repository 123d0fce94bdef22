package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// TestVisible checks that visible escapes control characters.
func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                       "plain",
		"größer\tas\nit is":           "größer\tas\nit is",
		"ev\x1b]0;owned\x07\x1b[2Jil": `ev\x1b]0;owned\a\x1b[2Jil`,
		"a\rb":                        `a\rb`,
		"\u009b2J":                    `\u009b2J`,
		"abc\u202etxt":                `abc\u202etxt`,
	} {
		got := visible(text)
		if got != want {
			t.Errorf("visible(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestControlCharactersOfTheRepository checks that no verb prints a control character that anyone who may write to the repository can
// choose, as text or as JSON.
func TestControlCharactersOfTheRepository(t *testing.T) {
	const evil = "ev\x1b]0;owned\x07\x1b[2J\u009b2J\u202eil\x7f"
	env, ids := filledWith(t, 1, sign.Key{}, evil)
	wantDone(t, dr(t, env, "pin", string(ids[0]), "--reason", evil))
	for _, args := range [][]string{
		{"list"}, {"list", "-o", "json"}, {"show", string(ids[0])}, {"show", string(ids[0]), "-o", "json"},
		{"status"}, {"status", "-o", "json"}, {"prune", "--keep-last", "1", "--dry-run"}, {"verify"}, {"verify", "-o", "json"},
		{"restore", "--dry-run", "--initial-cluster", "m1=http://127.0.0.1:2380"},
	} {
		out := dr(t, env, args...)
		if strings.ContainsFunc(out.stdout+out.stderr, isControl) {
			t.Errorf("dr %q prints a control character: %q, %q", args, out.stdout, out.stderr)
		}
	}
}

// TestJSONKeepsItsMeaning checks that escaped control characters in JSON decode to what they were.
func TestJSONKeepsItsMeaning(t *testing.T) {
	const text = "a\x7fb\u009bc\u202ed\U000e0001e\nf\U0001f600"
	var out strings.Builder
	a := &app{world: world{stdout: &out}}
	err := a.json(text)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	err = json.Unmarshal([]byte(out.String()), &got)
	if err != nil || got != text || strings.ContainsFunc(out.String(), isControl) {
		t.Errorf("%q is printed as %q, which decodes to %q, %v", text, out.String(), got, err)
	}
}

// TestOutputGoesThroughTheApp checks that a verb prints only by methods of app that escape control characters.
func TestOutputGoesThroughTheApp(t *testing.T) {
	escaping := []string{"app.go", "print.go", "progress.go"}
	raw := []string{"child.go", "demo.go", "extract.go", "namespace.go", "main.go", "find.go"} // main.go builds the app, find.go asks for a terminal
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") || slices.Contains(escaping, name) || slices.Contains(raw, name) {
			continue
		}
		if regexp.MustCompile(`\.(stdout|stderr)\b`).Match(text) {
			t.Errorf("%s writes to stdout or stderr itself: use a.printf, a.warnf, a.table, a.facts or a.json", name)
		}
	}
}

// TestTimesOfTheStatus checks the texts for times before and after now, and for the length of a recovery window.
func TestTimesOfTheStatus(t *testing.T) {
	now := time.Now()
	for d, want := range map[time.Duration]string{
		-90 * time.Minute: "1h ago", -time.Millisecond: "now", 0: "now", time.Millisecond: "now",
		time.Second: "in 1s", 90 * time.Second: "in 1m", 49 * time.Hour: "in 2d",
	} {
		got := nextDue(condition.Standing{Due: now.Add(d)}, now)
		if got != want {
			t.Errorf("due %s from now: %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s, to 3m ago", time.Millisecond: "0s, to 3m ago", time.Second: "1s, to 3m ago", 49 * time.Hour: "2d, to 3m ago",
	} {
		to := now.Add(-3 * time.Minute)
		s := condition.Standing{Window: &catalog.Window{From: catalog.Point{Time: to.Add(-d)}, To: catalog.Point{Time: to}}}
		got := windowOf(s, now)
		if got != want {
			t.Errorf("a window of %s: %q, want %q", d, got, want)
		}
	}
}

// TestPlanCountsAllRequests checks that a plan does not claim to have subtracted the requests that the backup contains.
func TestPlanCountsAllRequests(t *testing.T) {
	got := planLog(plan.Plan{Log: &plan.Log{Lineage: "a0", Segments: 2, Requests: 301, Bytes: 2048}, Reach: &plan.Reach{}})
	want := []string{
		"replays", "2 segments of lineage a0, 2.0 KiB, with 301 requests; those that the backup contains are skipped", "up to", "their end",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
