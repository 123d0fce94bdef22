package file_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/file"
)

// children are the jobs of this binary when a test runs it again, in a process that can be killed, lose its rights, or
// have mounts of its own.
var children = map[string]func(o order) report{
	"put":    childPut,
	"full":   childFull,
	"denied": childDenied,
	"user":   childUser,
}

const childEnv = "ETCD_DR_FILE_TEST_CHILD"

// order is a child's job.
type order struct {
	Do       string
	Dir      string
	At       int  // report after this many bytes
	Hang     bool // and do not continue
	IfAbsent bool

	UID    int // for "user"
	InTeam bool
}

// report is a child's result, by the name of the check.
type report map[string]string

func TestMain(m *testing.M) {
	text := os.Getenv(childEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err != nil {
		panic(err)
	}
	err = json.NewEncoder(os.Stdout).Encode(children[o.Do](o))
	if err != nil {
		panic(err)
	}
}

func child(t *testing.T, o order) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	return cmd
}

// skip fails the test in CI, which has everything that the tests need.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

const childSize = 300_000

func childContent() []byte { return bytes.Repeat([]byte("0123456789"), childSize/10) }

// childPut puts a/b/key. The test kills it meanwhile.
func childPut(o order) report {
	b, err := file.Create(o.Dir)
	if err != nil {
		panic(err)
	}
	all := childContent()
	first := io.MultiReader(bytes.NewReader(all[:o.At]), &teller{hang: o.Hang})
	r := io.MultiReader(first, bytes.NewReader(all[o.At:]))
	_, err = b.Put(context.Background(), "a/b/key", r, storage.PutOptions{IfAbsent: o.IfAbsent})
	if err != nil {
		panic(err)
	}
	return nil
}

// teller is a reader that reports on stdout that it was reached.
type teller struct{ hang bool }

func (r *teller) Read([]byte) (int, error) {
	fmt.Println("reached")
	if r.hang {
		_, _ = io.Copy(io.Discard, os.Stdin) // until killed
	}
	return 0, io.EOF
}

// childFull works in a file system of one megabyte.
func childFull(o order) report {
	err := syscall.Mount("tmpfs", o.Dir, "tmpfs", 0, "size=1m")
	if err != nil {
		return report{"no mount": err.Error()}
	}
	ctx := context.Background()
	b, err := file.Create(o.Dir)
	if err != nil {
		panic(err)
	}
	old := bytes.Repeat([]byte("x"), 1000)
	_, err = b.Put(ctx, "old", bytes.NewReader(old), storage.PutOptions{})
	r := report{"old": fmt.Sprint(err)}
	_, err = b.Put(ctx, "a/b/key", bytes.NewReader(make([]byte, 2<<20)), storage.PutOptions{IfAbsent: true})
	r["error"], r["is ENOSPC"] = fmt.Sprint(err), fmt.Sprint(errors.Is(err, syscall.ENOSPC))
	_, err = b.Put(ctx, "old", bytes.NewReader(make([]byte, 2<<20)), storage.PutOptions{})
	r["replace is ENOSPC"] = fmt.Sprint(errors.Is(err, syscall.ENOSPC))
	kept, err := os.ReadFile(filepath.Join(o.Dir, "old"))
	r["old is kept"] = fmt.Sprint(err == nil && bytes.Equal(kept, old))
	r["entries"] = fmt.Sprint(entries(o.Dir))
	_, err = b.Put(ctx, "a/b/key", bytes.NewReader(make([]byte, 900<<10)), storage.PutOptions{IfAbsent: true})
	r["what fits"] = fmt.Sprint(err)
	return r
}

// entries returns all names below dir.
func entries(dir string) []string {
	names := []string{}
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		names = append(names, name)
		return err
	})
	return names
}

// childDenied drops its rights, even root's, after it has opened a Bucket.
func childDenied(o order) report {
	ctx := context.Background()
	b, err := file.Create(o.Dir)
	if err != nil {
		panic(err)
	}
	_, err = b.Put(ctx, "a/key", bytes.NewReader(nil), storage.PutOptions{})
	if err != nil {
		panic(err)
	}
	err = os.Chmod(o.Dir, 0)
	if err != nil {
		panic(err)
	}
	if os.Geteuid() == 0 {
		err := syscall.Setuid(65534)
		if err != nil {
			panic(err)
		}
	}
	r := report{}
	_, err = file.Create(filepath.Join(o.Dir, "sub"))
	r["Open a directory"] = denied(err)
	_, err = b.Put(ctx, "new", bytes.NewReader(nil), storage.PutOptions{})
	r["Put"] = denied(err)
	_, _, err = b.Open(ctx, "a/key", storage.OpenOptions{})
	r["Open"] = denied(err)
	_, err = b.Stat(ctx, "a/key")
	r["Stat"] = denied(err)
	r["Delete"] = denied(b.Delete(ctx, "a/key", storage.DeleteOptions{}))
	for _, err := range b.List(ctx, storage.ListOptions{}) {
		r["List"] = denied(err)
	}
	for _, err := range b.Leftovers(ctx, "") {
		r["Leftovers"] = denied(err)
	}
	return r
}

func denied(err error) string {
	if errors.Is(err, storage.ErrDenied) && errors.Is(err, fs.ErrPermission) {
		return "denied"
	}
	return fmt.Sprint(err)
}
