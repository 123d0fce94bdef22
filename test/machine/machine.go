// Package machine is the host in the README, docs and runbooks, for tests that run their commands as written.
package machine

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
	"github.com/etcd-dr/etcd-dr/test/tools"
)

// root is the root of the tree, from the folder of a test package.
const root = "../.."

// Hosts returns the addresses of the machine's members.
func Hosts() []net.IP {
	return []net.IP{net.IPv4(10, 0, 0, 1), net.IPv4(10, 0, 0, 2), net.IPv4(10, 0, 0, 3)}
}

// Machine is a shell on such a host, in its own namespaces. It ends with its test.
type Machine struct {
	cmd    *exec.Cmd
	work   string
	stdin  io.Writer
	stdout *bufio.Reader
	stderr *buffer
}

// Start starts a machine whose three members have the given certificates, with additional variables for machine.sh. It
// skips the test if namespaces are unavailable; in CI it fails.
func Start(t *testing.T, certificates *servers.Certificates, env ...string) *Machine {
	t.Helper()
	if os.Geteuid() != 0 {
		tools.Missing(t, "the machine needs namespaces, and so root")
	}
	work := t.TempDir()
	tools.CopyTree(t, filepath.Join(work, "tree"))
	script, err := filepath.Abs(filepath.Join(root, "test/machine/machine.sh"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), script, filepath.Dir(certificates.CA), programs(t), work)
	m := &Machine{cmd: cmd, work: work, stderr: &buffer{}}
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), m.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	m.stdin, m.stdout = in, bufio.NewReader(out)
	return m
}

// Path returns the path at which the test finds a file of the machine.
func (m *Machine) Path(path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", m.cmd.Process.Pid), path)
}

// programs returns a directory with dr and the etcd tools.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	paths := []string{command.Path()}
	for _, name := range []string{"etcd", "etcdctl", "etcdutl"} {
		paths = append(paths, servers.Tool(t, "3.7", name))
	}
	for _, path := range paths {
		err := os.Symlink(path, filepath.Join(dir, filepath.Base(path)))
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const mark = "END-OF-COMMAND-7d1f"

// Run runs one command in the machine's shell, which keeps its variables and directory for the next.
func (m *Machine) Run(t *testing.T, line string) (stdout, stderr string, code int) {
	t.Helper()
	m.stderr.reset()
	// The command's stdin must not be the script that follows it.
	fmt.Fprintf(m.stdin, "{ %s\n} </dev/null; code=$?; echo; echo %s $code; echo %s >&2\n", line, mark, mark)
	var out strings.Builder
	for {
		text, err := m.stdout.ReadString('\n')
		if err != nil {
			t.Fatalf("$ %s\nthe machine ended: %v\n%s%s", line, err, out.String(), m.stderr.String())
		}
		_, err = fmt.Sscanf(text, mark+" %d", &code)
		if err == nil {
			m.stderr.waitFor(mark)
			return out.String(), strings.ReplaceAll(m.stderr.String(), mark+"\n", ""), code
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
