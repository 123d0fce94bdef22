package runbooks

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(runbooks, page+".md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pages returns the names of the pages, without their list.
func pages(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(runbooks, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".md")
		if name != "README" {
			names = append(names, name)
		}
	}
	return names
}

// section returns the text of a page from one heading to another, or to its end.
func section(t *testing.T, page, from, to string) string {
	t.Helper()
	_, text, found := strings.Cut(read(t, page), from)
	if !found {
		t.Fatalf("%s has no %s", page, from)
	}
	if to != "" {
		text, _, _ = strings.Cut(text, to)
	}
	return text
}

// skipMark is in an HTML comment directly before a block that no test can run, with the reason.
const skipMark = "<!-- not run: "

// blocks returns the indented blocks of a text, as lines, except those that are marked as not run. There is at least
// one.
func blocks(text string) (all [][]string) {
	var skip, within bool
	for line := range strings.Lines(text) {
		code, indented := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		switch {
		case !indented:
			if strings.TrimSpace(line) != "" {
				skip = strings.HasPrefix(strings.TrimSpace(line), skipMark)
			}
			within = false
		case skip:
		case within:
			all[len(all)-1] = append(all[len(all)-1], strings.TrimSpace(code))
		default:
			all, within = append(all, []string{strings.TrimSpace(code)}), true
		}
	}
	if len(all) == 0 {
		all = [][]string{{}}
	}
	return all
}

var inline = regexp.MustCompile("(?s)`([^`]+)`")

// programs are the beginnings of commands that are recognized within lines.
var programs = []string{"dr ", "etcdctl ", "systemctl ", "curl "}

// commands returns the commands of a text, in its blocks and within its lines.
func commands(text string) (all []string) {
	for _, block := range blocks(text) {
		all = append(all, block...)
	}
	for _, m := range inline.FindAllStringSubmatch(text, -1) {
		for _, program := range programs {
			if strings.HasPrefix(m[1], program) {
				all = append(all, strings.Join(strings.Fields(m[1]), " "))
			}
		}
	}
	return all
}

// readers are the beginnings of commands that write nothing.
var readers = []string{
	"curl ", "df ", "dr archive verify ", "dr config check ", "dr find ", "dr list", "dr prune ", "dr show ", "dr status", "etcdctl alarm list",
	"etcdctl endpoint ", "etcdctl member list", "grep ", "journalctl ", "openssl x509 ", "systemctl status ",
}

// TestLookWritesWhatTheListNames checks that each command below Look writes nothing, or is one that README.md names.
func TestLookWritesWhatTheListNames(t *testing.T) {
	names := section(t, "README", "them write something:", "## ")
	for _, page := range pages(t) {
		for _, line := range blocks(section(t, page, "**Look:**", "**Do:**"))[0] {
			words := strings.Fields(line)
			named := words[0] == "dr" && strings.Contains(names, "- `dr "+words[1]+"` ")
			reads := slices.ContainsFunc(readers, func(r string) bool { return strings.HasPrefix(line, r) })
			if !named && !reads || strings.HasPrefix(line, "dr prune") && !strings.Contains(line, "--dry-run") {
				t.Errorf("%s: `%s` may write, and README.md does not name it", page, line)
			}
		}
	}
}
