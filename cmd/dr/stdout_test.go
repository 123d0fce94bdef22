package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// full is a stdout without free space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestAFullStdoutIsAnError checks that every verb reports an error if stdout cannot be written.
func TestAFullStdoutIsAnError(t *testing.T) {
	config, repo := configured(t)
	for _, args := range [][]string{
		{}, {"version"}, {"version", "-o", "json"}, {"help"}, {"list", "--help"}, {"completion", "bash"},
		{"keygen", "--to", filepath.Join(t.TempDir(), "key.txt")},
		{"list", "--repo", repo}, {"list", "--repo", repo, "-o", "json"}, {"status", "--repo", repo},
		{"show", "--repo", repo, "--cluster", "stale"}, {"prune", "--repo", repo, "--cluster", "fine", "--keep-last", "1", "--dry-run"},
		{"config", "check", "--config", config},
		{"check", "--repo", repo},
	} {
		var stderr bytes.Buffer
		getenv := func(string) string { return "" }
		code := run(t.Context(), args, world{strings.NewReader(""), full{}, &stderr, getenv})
		if code != exitOther || !strings.Contains(stderr.String(), "dr: stdout: no space left on device") {
			t.Errorf("dr %s: exit code %d, stderr %q", strings.Join(args, " "), code, stderr.String())
		}
	}
}

// TestAFullStdoutHidesNoError checks that the verb's own error takes precedence over that of stdout.
func TestAFullStdoutHidesNoError(t *testing.T) {
	var stderr bytes.Buffer
	getenv := func(string) string { return "" }
	code := run(t.Context(), []string{"list", "-o", "json"}, world{strings.NewReader(""), full{}, &stderr, getenv})
	if code != exitUsage || !strings.Contains(stderr.String(), "DR_REPO") {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
}

// asDR makes the test binary run as dr.
const asDR = "ETCD_DR_TEST_IS_DR"

// hanging starts dr with a cluster that accepts connections and never responds, and returns after the first connection.
func hanging(t *testing.T, shell string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	stderr := &bytes.Buffer{}
	cmd := exec.Command("sh", "-c", shell+` exec "$0" "$@"`, os.Args[0], "backup", "--repo", "file://"+t.TempDir(), "--cluster", "prod",
		"--endpoints", "http://"+listener.Addr().String(), "--dial-timeout", "1h")
	cmd.Env = append(os.Environ(), asDR+"=1")
	cmd.Stderr = stderr
	err = cmd.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer conn.Close()
		_, _ = io.Copy(io.Discard, conn) // until dr ends
	}()
	return cmd, stderr
}

func wantInterrupted(t *testing.T, cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	err := cmd.Wait()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != exitInterrupted {
		t.Errorf("it ended with %v, want exit code %d\n%s", err, exitInterrupted, stderr)
	}
	if !strings.Contains(stderr.String(), "dr: interrupted: ") {
		t.Errorf("stderr %q", stderr)
	}
}

// TestAHangupIsAnInterrupt checks that SIGHUP, which a closed terminal sends, ends dr like an interrupt.
func TestAHangupIsAnInterrupt(t *testing.T) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP) // where the tests run under nohup, the child would ignore it too
	defer signal.Stop(caught)
	cmd, stderr := hanging(t, "")
	err := cmd.Process.Signal(syscall.SIGHUP)
	if err != nil {
		t.Fatal(err)
	}
	wantInterrupted(t, cmd, stderr)
}

// TestHangupUnderNohupIsIgnored checks that dr ignores SIGHUP under nohup.
func TestHangupUnderNohupIsIgnored(t *testing.T) {
	cmd, stderr := hanging(t, "trap '' HUP;")
	err := cmd.Process.Signal(syscall.SIGHUP)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wantInterrupted(t, cmd, stderr)
	}()
	select {
	case <-ended:
		t.Error("the hangup ended it")
	case <-time.After(200 * time.Millisecond):
		err := cmd.Process.Signal(syscall.SIGTERM)
		if err != nil {
			t.Error(err)
		}
		<-ended
	}
}
