//go:build linux

// Package mount mounts file systems for a test, on Linux.
package mount

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/test/tools"
)

const aloneEnv = "ETCD_DR_TEST_MOUNTS"

// Alone runs the calling test again in a process with its own mounts, and reports whether this is that process, which gets more environment
// variables. A user other than root becomes root of a user namespace.
func Alone(t *testing.T, env ...string) bool {
	t.Helper()
	if os.Getenv(aloneEnv) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(append(os.Environ(), aloneEnv+"=1"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // makes them private too
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	exit := &exec.ExitError{}
	if err != nil && !errors.As(err, &exit) {
		tools.Missing(t, "no mounts of its own: "+err.Error())
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in mounts of its own: %v\n%s", err, out)
	}
	return false
}

// NeedRoot ends a test that only root can run, of the machine and not of a user namespace: it is skipped, and fails in CI.
func NeedRoot(t *testing.T) {
	t.Helper()
	if os.Getenv(aloneEnv) == "" && os.Getuid() != 0 {
		tools.Missing(t, "only root may mount")
	}
}

// Do mounts a file system until the test ends. Its arguments are those of mount(2).
func Do(t *testing.T, source, target, kind string, flags uintptr, data string) {
	t.Helper()
	err := unix.Mount(source, target, kind, flags, data)
	if err != nil {
		t.Fatalf("mount %s: %v", target, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
}

// Bind mounts a directory at another one until the test ends, as a container mounts a directory of its host.
func Bind(t *testing.T, source, target string) {
	t.Helper()
	Do(t, source, target, "", unix.MS_BIND, "")
}
