// Package faults breaks the inputs and the environment of dr (bytes, processes, servers, disks) and checks the result.
//
// It runs the real binary against real servers. One test runs at a time: several check that no process of dr is left.
package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// shared is a directory for all tests of one run.
var shared string

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

// runAll runs the tests with a directory that they share, and a binary of their own.
func runAll(m *testing.M) int {
	var err error
	shared, err = os.MkdirTemp("", "dr-faults-*")
	if err == nil {
		defer os.RemoveAll(shared)
		err = copyBinary()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return command.Main(withStores{m})
}

// copyBinary replaces the binary that the tests of several packages share, if there is one: processes returns those of these tests alone.
func copyBinary() error {
	from := os.Getenv(command.Variable)
	if from == "" {
		return nil
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	own := filepath.Join(shared, "dr")
	err = os.WriteFile(own, content, 0o755)
	if err != nil {
		return err
	}
	return os.Setenv(command.Variable, own)
}

// withStores runs the tests with object stores.
type withStores struct{ tests *testing.M }

func (w withStores) Run() int { return objectstores.Main(w.tests) }

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

// hangs is far beyond the time of any step here.
const hangs = 3 * time.Minute

// start starts dr, with -o json.
func start(t testing.TB, args ...string) *command.Process {
	t.Helper()
	return command.Start(t, nil, append(args, "-o", "json")...)
}

// run runs dr to its end, with -o json.
func run(t testing.TB, args ...string) command.Output {
	t.Helper()
	return start(t, args...).Wait(t)
}

// noProcess waits until no dr of these tests runs: a child whose parent was killed has to end by itself.
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

// processes returns the command lines of all dr that these tests run.
func processes(t testing.TB) (running []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		path, err := os.Readlink(link)
		if err != nil || path != command.Path() {
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
