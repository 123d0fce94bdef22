package runbooks

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
)

// seen returns the part of a page that names the alert, and shows the condition and the log.
func seen(t *testing.T, page string) string {
	t.Helper()
	return section(t, page, "**You see:**", "**At risk:**")
}

// TestPagesShowTheirCondition checks that each page of a condition shows its message and how dr serve logs it. The other pages
// contain the words No condition.
func TestPagesShowTheirCondition(t *testing.T) {
	for _, page := range pages(t) {
		part := seen(t, page)
		shown, ok := shownCondition(part)
		switch {
		case strings.Contains(part, "No condition") != !ok:
			t.Errorf("%s: a page shows a condition, or has the words No condition", page)
		case !ok:
			continue
		case shown.name != page || !slices.Contains(condition.Names, condition.Name(page)):
			t.Errorf("%s shows the condition %s", page, shown.name)
		case strings.HasPrefix(shown.message, "…"):
			t.Errorf("%s shows no message", page)
		case !slices.Contains(blocks(part)[0], shown.logged("…")):
			t.Errorf("%s does not show the line of the log\n%s", page, shown.logged("…"))
		}
	}
}

var loggedWords = regexp.MustCompile("logs `([^`]+)`")

// TestLoggedWordsExist checks that a page quotes words that the code can log, if they are not in an example.
func TestLoggedWordsExist(t *testing.T) {
	var code strings.Builder
	for _, folder := range []string{"api/service", "backup/archive", "scheduler"} {
		files, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(file, "_test.go") {
				code.Write(text)
			}
		}
	}
	for _, page := range pages(t) {
		for _, m := range loggedWords.FindAllStringSubmatch(oneSpace(seen(t, page)), -1) {
			if !strings.Contains(code.String(), m[1]) {
				t.Errorf("%s: the code does not log %q", page, m[1])
			}
		}
	}
}

// example is a condition as a page shows it.
type example struct{ severity, name, message string }

var statusLine = regexp.MustCompile(`^(critical|warning) (\w+)(?: in \w+)?: (.+)$`)

// shownCondition returns the condition that a part of a page shows as dr status prints it.
func shownCondition(part string) (example, bool) {
	for _, line := range blocks(part)[0] {
		m := statusLine.FindStringSubmatch(line)
		if m != nil {
			return example{m[1], m[2], m[3]}, true
		}
	}
	return example{}, false
}

// logged returns the part of the line with which dr serve logs the begin of the condition.
func (e example) logged(message string) string {
	return `"level":"WARN","msg":"` + e.name + " (" + e.severity + "): " + message + `","stage":"condition"`
}

// see fails the test unless the machine shows each example of a page.
func (h *host) see(t *testing.T, page string, w walk) {
	t.Helper()
	part := seen(t, page)
	where := oneSpace(part)
	shown, _ := shownCondition(part)
	for _, line := range blocks(part)[0] {
		if line == shown.logged("…") {
			if !w.service {
				continue // dr serve does not run
			}
			line = shown.logged(escaped(shown.message) + "; …")
		}
		h.untilShown(t, page, source(where, line), pattern(line, bothSeverities(part)))
	}
}

// source returns the command that prints a line like line. A part of a page names the command that shows its condition.
func source(part, line string) string {
	switch {
	case strings.HasPrefix(line, `"level"`):
		return "cat /etc/units/*.log"
	case strings.HasPrefix(line, "curl: "):
		return "curl -sS http://127.0.0.1:" + regexp.MustCompile("239[01]").FindString(line) + "/metrics 2>&1"
	case !statusLine.MatchString(line):
		return "dr status --config /etc/etcd-dr/dr.yaml"
	case strings.Contains(part, "`/status`"):
		return "curl -sS http://127.0.0.1:2391/status | conditions"
	case strings.Contains(part, "`dr status --check`"):
		return "dr status --config /etc/etcd-dr/dr.yaml --check -o json | conditions"
	}
	return "dr status --config /etc/etcd-dr/dr.yaml -o json | conditions"
}

// untilShown repeats a command until it prints a line that matches.
func (h *host) untilShown(t *testing.T, page, command string, line *regexp.Regexp) {
	t.Helper()
	var stdout string
	done := poll(func() bool {
		stdout, _, _ = h.Run(t, command)
		return slices.ContainsFunc(slices.Collect(strings.Lines(stdout)), func(real string) bool { return line.MatchString(general(real)) })
	})
	if !done {
		t.Fatalf("%s: $ %s\nnever printed a line like\n%s\nlast:\n%s", page, command, line, stdout)
	}
}

// values match the parts of a line that differ each time: ids, times, durations, sizes, numbers and keys.
var values = regexp.MustCompile(`\d{8}T\d{6}Z-[0-9a-f]+|\d{4}-\d\d-\d\d(T[\d:.]+Z)?|age1\w+|\d+(\.\d+)? ([KMGT]i)?B\b|` +
	`(\d+ days|(\d+(\.\d+)?(h|ms|m|s|d))+|now)( ago)?\b|[0-9a-f]*\d[0-9a-f]*`)

// general returns line with # for each value, and one space between words.
func general(line string) string { return values.ReplaceAllString(oneSpace(line), "#") }

func oneSpace(text string) string { return strings.Join(strings.Fields(text), " ") }

// pattern returns the expression for lines like line, in which … is any text. A line of the log may have more before and after
// it. With either, a severity matches the other too: such a condition gets worse with time.
func pattern(line string, either bool) *regexp.Regexp {
	text := strings.ReplaceAll(regexp.QuoteMeta(general(line)), "…", ".*")
	if either {
		text = regexp.MustCompile("critical|warning").ReplaceAllString(text, "(critical|warning)")
	}
	if !strings.HasPrefix(line, `"`) {
		text = "^" + text + "$"
	}
	return regexp.MustCompile(text)
}

// bothSeverities reports whether a part names the alerts for both.
func bothSeverities(part string) bool {
	return strings.Contains(part, "EtcdDRConditionCritical") && strings.Contains(part, "EtcdDRConditionWarning")
}

// escaped returns a text as it is inside a JSON string.
func escaped(text string) string {
	var quoted strings.Builder
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string
	return strings.TrimSuffix(strings.TrimPrefix(quoted.String(), `"`), "\"\n")
}

// TestExamplesAreCompared checks that values may differ from those of a page, and words may not.
func TestExamplesAreCompared(t *testing.T) {
	const line = "critical BackupLate in main: the last good backup was taken at 2026-03-01T02:00:00Z, and the next was due 26h3m ago"
	for real, want := range map[string]bool{
		"critical BackupLate in main: the last good backup was taken at 2026-11-21T06:09:31Z, and the next was due 3 days ago":       true,
		"critical BackupLate in main: the newest good backup was taken at 2026-11-21T06:09:31Z, and the next was due 3 days ago":     false,
		"critical BackupLate in main: the last good backup was taken at 2026-11-21T06:09:31Z, and the next was due 3 days ago: a b":  false,
		"warning BackupLate in main: the last good backup was taken at 2026-11-21T06:09:31Z, and the next was due 3 days ago":        false,
		"critical BackupLate in offsite: the last good backup was taken at 2026-11-21T06:09:31Z, and the next was due 1h0m0.5s ago":  false,
		"critical   BackupLate in main: the last good backup was taken at 2026-11-21T06:09:31.5Z, and the next was due 1h0m0.5s ago": true,
	} {
		got := pattern(line, false).MatchString(general(real))
		if got != want {
			t.Errorf("%q matches: %v", real, got)
		}
	}
	if !pattern(line, true).MatchString(general(strings.Replace(line, "critical", "warning", 1))) {
		t.Error("the other severity does not match")
	}
	const log = `{"level":"WARN","msg":"A (warning): 1.3 MiB of \"b\"; dr check","stage":"condition","cluster":"prod"}`
	a := example{"warning", "A", `64 MiB of "b"`}
	if !pattern(a.logged(escaped(a.message)+"; …"), false).MatchString(general(log)) {
		t.Error("the line of the log does not match")
	}
}
