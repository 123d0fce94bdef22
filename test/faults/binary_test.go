// Package faults breaks the inputs and the environment of dr (bytes, processes, servers, disks) and checks the result.
//
// It runs the real binary against real servers. One test runs at a time: several check that no process of dr is left.
package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// binary is dr, and shared a directory for all tests of one run. The binary exists unless -short is given.
var binary, shared string

func TestMain(m *testing.M) { os.Exit(command.Main(sharing{m})) }

// sharing runs the tests with a directory that they share.
type sharing struct{ tests *testing.M }

func (s sharing) Run() int {
	binary = command.Path()
	var err error
	shared, err = os.MkdirTemp("", "dr-faults-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(shared)
	return objectstores.Main(s.tests)
}

// soaking reports whether the large counts are requested.
func soaking() bool { return os.Getenv("ETCD_DR_SOAK") != "" && !testing.Short() }

// setting returns a number from the environment.
func setting(t *testing.T, name string, otherwise int64) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func seed(t *testing.T) uint64 { return uint64(setting(t, "ETCD_DR_SEED", 1)) }

func soakTime(t *testing.T) time.Duration {
	return time.Duration(setting(t, "ETCD_DR_SECONDS", 60)) * time.Second
}

// hangs is far beyond the time of any command here: dr is killed then, and the test fails.
const hangs = 3 * time.Minute

// process is one running dr, in its own process group.
type process struct {
	cmd    *exec.Cmd
	lines  *bufio.Reader
	stdout bytes.Buffer
	stderr bytes.Buffer
	stage  string // of the last event read
	done   context.CancelFunc
}

// outcome is the result of a dr that has ended.
type outcome struct {
	args           []string
	code           int // -1: by a signal
	stage          string
	stdout, stderr string
}

func (o outcome) String() string {
	return fmt.Sprintf("dr %s: exit code %d\n%s%s", strings.Join(o.args, " "), o.code, o.stdout, o.stderr)
}

// start starts dr, with -o json.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	t.Cleanup(cancel)
	p := &process{cmd: exec.CommandContext(ctx, binary, append(args, "-o", "json")...), done: cancel}
	p.cmd.Env = environment()
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewReader(out)
	err = p.cmd.Start()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// environment omits the variables that dr reads: the machine's settings are not the test's.
func environment() []string {
	var kept []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "DR_") && !strings.HasPrefix(entry, "ETCDCTL_") {
			kept = append(kept, entry)
		}
	}
	return kept
}

// next returns the next event; false: there are no more.
func (p *process) next() (storage.Event, bool) {
	for {
		text, err := p.lines.ReadBytes('\n')
		p.stdout.Write(text)
		if err != nil {
			return storage.Event{}, false
		}
		var line struct{ Event *storage.Event }
		if json.Unmarshal(text, &line) == nil && line.Event != nil {
			p.stage = line.Event.Stage
			return *line.Event, true
		}
	}
}

// until reads to the nth event of a stage; false: it ended before.
func (p *process) until(n int, stage string) bool {
	for n > 0 {
		event, ok := p.next()
		if !ok {
			return false
		}
		if event.Stage == stage {
			n--
		}
	}
	return true
}

func (p *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	err := p.cmd.Process.Signal(s)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// wait reads the rest, and waits for the end.
func (p *process) wait(t testing.TB) outcome {
	t.Helper()
	for more := true; more; {
		_, more = p.next()
	}
	err := p.cmd.Wait()
	exit := (&exec.ExitError{})
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	p.done()
	return outcome{p.cmd.Args[1:], p.cmd.ProcessState.ExitCode(), p.stage, p.stdout.String(), p.stderr.String()}
}

// run runs dr from start to end.
func run(t testing.TB, args ...string) outcome {
	t.Helper()
	return start(t, args...).wait(t)
}

// good fails the test unless dr succeeded, and decodes its result.
func (o outcome) good(t testing.TB, result any) {
	t.Helper()
	if o.code != 0 {
		t.Fatalf("%s", o)
	}
	o.noTrace(t)
	if result != nil {
		o.decode(t, result)
	}
}

// decode decodes the result of a verb with events, or the document of one without.
func (o outcome) decode(t testing.TB, result any) {
	t.Helper()
	line := struct{ Result any }{result}
	for text := range strings.Lines(o.stdout) {
		if strings.HasPrefix(text, `{"result":`) {
			err := json.Unmarshal([]byte(text), &line)
			if err != nil {
				t.Fatalf("%v\n%s", err, o)
			}
			return
		}
	}
	// A document may be followed by the line of the error that makes the exit code.
	err := json.NewDecoder(strings.NewReader(o.stdout)).Decode(result)
	if err != nil {
		t.Fatalf("%v\n%s", err, o)
	}
}

// bad fails the test unless dr ended with the code and with one line on stderr, without a stack trace, that contains
// all words. The last line on stdout must have the same error.
func (o outcome) bad(t testing.TB, code int, words ...string) {
	t.Helper()
	o.noTrace(t)
	message, ok := strings.CutPrefix(o.stderr, "dr: ")
	if o.code != code || !ok || strings.Index(message, "\n") != len(message)-1 {
		t.Errorf("want exit code %d and one line on stderr\n%s", code, o)
		return
	}
	for _, word := range words {
		if !strings.Contains(message, word) {
			t.Errorf("the message does not contain %q\n%s", word, o)
		}
	}
	lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
	var last document.Line
	err := json.Unmarshal([]byte(lines[len(lines)-1]), &last)
	if err != nil || last.Error == nil ||
		last.Error.Message != strings.TrimSpace(message) || last.Error.ExitCode != code {
		t.Errorf("the last line on stdout is not the error\n%s", o)
	}
}

func (o outcome) noTrace(t testing.TB) {
	t.Helper()
	for _, sign := range []string{"goroutine ", "\npanic:", "\nfatal error:", "[recovered]"} {
		if strings.Contains("\n"+o.stdout+"\n"+o.stderr, sign) {
			t.Errorf("a stack trace came out\n%s", o)
			return
		}
	}
}

// noProcess waits until no dr runs: a child whose parent was killed has to end by itself.
func noProcess(t testing.TB) {
	t.Helper()
	var left []string
	for end := time.Now().Add(hangs); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		left = processes(t)
		if len(left) == 0 {
			return
		}
	}
	t.Fatalf("dr still runs: %q", left)
}

// processes returns the command lines of all running dr.
func processes(t testing.TB) (running []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		path, err := os.Readlink(link)
		if err != nil || path != binary {
			continue
		}
		words, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
		running = append(running, fmt.Sprintf("%s %q", link, words))
	}
	return running
}

// children returns the processes that a process has started: a child belongs to the thread that started it.
func children(pid int) (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		content, _ := os.ReadFile(list) // the thread may be gone
		for _, field := range strings.Fields(string(content)) {
			pid, err := strconv.Atoi(field)
			if err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// nothingIn fails the test unless dir is empty.
func nothingIn(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s was left in %s", e.Name(), dir)
	}
}
