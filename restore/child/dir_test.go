package child_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/child"
)

// dirEnv makes this binary a process that creates a scratch directory below the directory it names, and waits to be killed.
const dirEnv = "ETCD_DR_CHILD_TEST_DIR"

func holdDir(parent string) {
	d, err := child.NewDir(parent, "test")
	if err != nil {
		os.Exit(1)
	}
	err = os.WriteFile(filepath.Join(d.Path, "db"), []byte("secret"), 0o600)
	if err != nil {
		os.Exit(1)
	}
	time.Sleep(time.Hour)
}

func in(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func makeDir(t *testing.T, parent string) *child.Dir {
	t.Helper()
	d, err := child.NewDir(parent, "verify")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// NewDir removes the directories of killed processes, and keeps those of running ones and those that are not dr's.
func TestDirGoesWithItsOwner(t *testing.T) {
	parent := t.TempDir()
	strangers := []string{"dr-backups-12", "dr-scratch-verify-12", "dr-scratch-verify-x", "other"}
	for _, name := range strangers {
		err := os.MkdirAll(filepath.Join(parent, name, "db"), 0o700)
		if err != nil {
			t.Fatal(err)
		}
	}
	err := os.Remove(filepath.Join(parent, "dr-backups-12", "db"))
	if err != nil { // empty, with a name that is not dr's
		t.Fatal(err)
	}
	err = os.Mkdir(filepath.Join(parent, "dr-scratch-find-7"), 0o700)
	if err != nil { // killed before it created the lock
		t.Fatal(err)
	}
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), dirEnv+"="+parent)
	err = owner.Start()
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for end := time.Now().Add(time.Minute); len(left) == 0; time.Sleep(10 * time.Millisecond) {
		left, _ = filepath.Glob(filepath.Join(parent, "dr-scratch-test-*", "db"))
		if time.Now().After(end) {
			t.Fatal("the other process makes no directory")
		}
	}
	mine := makeDir(t, parent)
	n := len(in(t, parent))
	if n != len(strangers)+2 {
		t.Errorf("while both live: %q", in(t, parent))
	}
	_ = owner.Process.Signal(syscall.SIGKILL)
	_ = owner.Wait()
	next := makeDir(t, parent)
	_, err = os.Stat(left[0])
	if !os.IsNotExist(err) {
		t.Errorf("what a killed process left is still there: %v", err)
	}
	for _, d := range []*child.Dir{mine, next} {
		_, err := os.Stat(d.Path)
		if err != nil {
			t.Error(err)
		}
		err = d.Remove()
		if err != nil {
			t.Error(err)
		}
	}
	left = in(t, parent)
	if !slices.Equal(left, strangers) {
		t.Errorf("in the end there are %q", left)
	}
}

// Concurrent processes never treat each other's directories as abandoned.
func TestDirsAtOnce(t *testing.T) {
	parent := t.TempDir()
	var making sync.WaitGroup
	for range 8 {
		making.Go(func() {
			for range 50 {
				d, err := child.NewDir(parent, "verify")
				if err != nil {
					t.Error(err)
					return
				}
				err = os.WriteFile(filepath.Join(d.Path, "db"), nil, 0o600)
				if err != nil {
					t.Error(err)
				}
				err = d.Remove()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	making.Wait()
	left := in(t, parent)
	if len(left) != 0 {
		t.Errorf("left were %q", left)
	}
}

func TestDirWhereNoneCanBe(t *testing.T) {
	d, err := child.NewDir(filepath.Join(t.TempDir(), "absent"), "verify")
	if err == nil {
		t.Errorf("there is %s", d.Path)
	}
}
