package imported_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/restore/imported"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// lockedEnv names the locked database in a run of this test binary as another container.
const lockedEnv = "ETCD_DR_IMPORTED_LOCKED"

// TestFromFileRefusesALockedDatabase checks that the database of a running server is refused, also if the server runs in another container.
func TestFromFileRefusesALockedDatabase(t *testing.T) {
	file := os.Getenv(lockedEnv)
	if file != "" {
		err := unix.Mount("proc", "/proc", "proc", 0, "")
		if err != nil {
			t.Skip("no /proc of its own: ", err)
		}
		wantLocked(t, file)
		return
	}
	file = write(t, "db", plainDatabase(t))
	unlock := lock(t, file, unix.LOCK_EX)
	wantLocked(t, file)
	wantSameInAContainer(t, file)
	unlock()
	defer lock(t, file, unix.LOCK_SH)() // as a process that only reads
	d, err := imported.FromFile(t.Context(), file, imported.Options{SkipHashCheck: true}, nil)
	if err != nil {
		t.Fatalf("next to a reader: %v", err)
	}
	_ = d.Close()
}

// lock locks file as bbolt does.
func lock(t *testing.T, file string, how int) (unlock func()) {
	t.Helper()
	f, err := os.Open(file)
	if err == nil {
		err = unix.Flock(int(f.Fd()), how)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}

func wantLocked(t *testing.T, file string) {
	t.Helper()
	_, err := imported.FromFile(t.Context(), file, imported.Options{SkipHashCheck: true}, nil)
	if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), "a process has") {
		t.Errorf("error %v", err)
	}
}

// wantSameInAContainer runs the calling test again in PID and mount namespaces of its own.
func wantSameInAContainer(t *testing.T, file string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), lockedEnv+"="+file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Cloneflags: syscall.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	exit := (&exec.ExitError{})
	switch {
	case err != nil && !errors.As(err, &exit):
		t.Log("no namespaces of its own: ", err)
	case err != nil:
		t.Errorf("in another container: %v\n%s", err, out)
	default:
		t.Logf("in another container:\n%s", out)
	}
}
