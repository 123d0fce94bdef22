// Package readme runs every command of the README and of docs/, in order and as written, and compares its output with the
// page. It also checks the pages' links, the index, and that ARCHITECTURE.md names every package.
package readme

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/machine"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

func TestMain(m *testing.M) { os.Exit(command.Main(m)) }

const root = "../.."

// maxSkipped is the largest number of blocks that may be marked as not run.
const maxSkipped = 3

func TestEveryCommandOfTheDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("needs real servers")
	}
	steps := readPages(t)
	m := machine.Start(t, servers.NewCertificates(t, machine.Hosts()...))
	for _, step := range steps {
		if notRun(step.command) {
			continue
		}
		stdout, stderr, code := m.Run(t, step.command)
		got := append(strings.Split(stdout, "\n"), messages(stderr)...)
		failing := len(step.want) > 0 && strings.HasPrefix(step.want[0], "dr: ")
		if (code != 0) != failing {
			t.Fatalf("%s:%d: $ %s\nexit code %d\n%s%s", step.page, step.line, step.command, code, stdout, stderr)
		}
		if len(trim(step.want)) > 0 && !matches(step.want, got) {
			t.Errorf("%s:%d: $ %s\nthe page shows:\n%s\nit printed:\n%s", step.page, step.line, step.command,
				strings.Join(step.want, "\n"), strings.Join(got, "\n"))
		}
	}
}

func readPages(t *testing.T) (steps []step) {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var skipped []string
	for _, page := range append([]string{filepath.Join(root, "README.md")}, pages...) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		more, reasons := parse(strings.TrimPrefix(page, root+"/"), string(text))
		steps, skipped = append(steps, more...), append(skipped, reasons...)
	}
	if len(skipped) > maxSkipped {
		t.Errorf("%d blocks are not run, allowed are %d: %q", len(skipped), maxSkipped, skipped)
	}
	if len(steps) < 10 {
		t.Errorf("only %d commands found: the parser misses them", len(steps))
	}
	return steps
}

// messages returns dr's messages on stderr without its log lines, in place of which a terminal shows a bar.
func messages(stderr string) (lines []string) {
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "dr: ") && !strings.HasPrefix(line, "dr: WARNING") {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return lines
}
