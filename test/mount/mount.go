//go:build linux

// Package mount mounts file systems for a test. The tests that use it run on Linux as root.
package mount

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const aloneEnv = "ETCD_DR_TEST_MOUNTS"

// Alone runs the calling test again in a process with its own mounts, and reports whether this is that process.
func Alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneEnv) != "" {
		return true
	}
	unavailable := t.Skip
	if os.Getenv("CI") == "true" {
		unavailable = t.Fatal
	}
	if os.Getuid() != 0 {
		unavailable("only root may mount")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), aloneEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		unavailable("mount namespaces are not allowed here")
	}
	if err != nil {
		t.Errorf("in a process of its own: %v\n%s", err, out)
	}
	return false
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
