// Package readme runs every command of the README and of docs/, in order and as written, and compares what they print
// with what the pages show.
package readme

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

func TestMain(m *testing.M) { os.Exit(command.Main(m)) }

const root = "../.."

// At most so many blocks may be marked as not run.
const maxSkipped = 3

func TestEveryCommandOfTheDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("needs real servers")
	}
	if os.Geteuid() != 0 {
		unavailable(t, "the pages' machine needs namespaces, and so root")
	}
	steps := readPages(t)
	s := startSession(t)
	for _, step := range steps {
		if notRun(step.command) {
			continue
		}
		stdout, stderr, code := s.run(t, step.command)
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

// messages are what dr says on stderr, its log lines aside: a terminal shows a bar instead.
func messages(stderr string) (lines []string) {
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "dr: ") && !strings.HasPrefix(line, "dr: WARNING") {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return lines
}

// session is a shell on the pages' machine.
type session struct {
	stdin  io.Writer
	stdout *bufio.Reader
	stderr *buffer
}

func startSession(t *testing.T) *session {
	t.Helper()
	work := t.TempDir()
	copyTree(t, filepath.Join(work, "tree"))
	certificates := servers.NewCertificates(t, net.IPv4(10, 0, 0, 1), net.IPv4(10, 0, 0, 2), net.IPv4(10, 0, 0, 3))
	script, err := filepath.Abs("session.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), script, filepath.Dir(certificates.CA), programs(t), work)
	s := &session{stderr: &buffer{}}
	cmd.Stderr = s.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	s.stdin, s.stdout = in, bufio.NewReader(out)
	return s
}

// programs is a directory with dr and the etcd tools.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	paths := []string{command.Path()}
	for _, name := range []string{"etcd", "etcdctl", "etcdutl"} {
		paths = append(paths, servers.Tool(t, "3.7", name))
	}
	for _, path := range paths {
		if err := os.Symlink(path, filepath.Join(dir, filepath.Base(path))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// copyTree copies what git knows, so that the pages' commands write into no work tree.
func copyTree(t *testing.T, to string) {
	t.Helper()
	script := fmt.Sprintf("mkdir -p '%s' && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t '%s'", to, to)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("copy the tree: %v\n%s", err, out)
	}
}

const mark = "END-OF-COMMAND-7d1f"

// run runs one command in the session's shell, which keeps its variables and directory for the next.
func (s *session) run(t *testing.T, line string) (stdout, stderr string, code int) {
	t.Helper()
	s.stderr.reset()
	// The command's stdin must not be the script that follows it.
	fmt.Fprintf(s.stdin, "{ %s\n} </dev/null; code=$?; echo; echo %s $code; echo %s >&2\n", line, mark, mark)
	var out strings.Builder
	for {
		text, err := s.stdout.ReadString('\n')
		if err != nil {
			t.Fatalf("$ %s\nthe session ended: %v\n%s%s", line, err, out.String(), s.stderr.String())
		}
		if _, err := fmt.Sscanf(text, mark+" %d", &code); err == nil {
			s.stderr.waitFor(mark)
			return out.String(), strings.ReplaceAll(s.stderr.String(), mark+"\n", ""), code
		}
		out.WriteString(text)
	}
}

// buffer collects stderr while the session runs.
type buffer struct {
	mu   sync.Mutex
	more sync.Cond
	data bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data.Write(p)
	if b.more.L != nil {
		b.more.Broadcast()
	}
	return len(p), nil
}

func (b *buffer) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data.Reset()
}

func (b *buffer) waitFor(words string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.more.L = &b.mu
	for !strings.Contains(b.data.String(), words) {
		b.more.Wait()
	}
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}

// unavailable skips, but not in CI: there a skip is a failure.
func unavailable(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}
