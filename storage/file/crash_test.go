package file_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/file"
)

// TestKilledWhileReading checks that nothing is visible unless the source has been read to its end.
func TestKilledWhileReading(t *testing.T) {
	points := []int{0, 1, 128<<10 - 1, 128 << 10, 128<<10 + 1, childSize - 1, childSize}
	random := rand.New(rand.NewPCG(1, 2))
	for range 3 {
		points = append(points, random.IntN(childSize))
	}
	for _, at := range points {
		for _, ifAbsent := range []bool{true, false} {
			t.Run(fmt.Sprintf("at=%d/ifAbsent=%v", at, ifAbsent), func(t *testing.T) {
				dir := t.TempDir()
				kill(t, order{Do: "put", Dir: dir, At: at, Hang: true, IfAbsent: ifAbsent}, 0)
				b := open(t, dir)
				if content(t, b) != nil {
					t.Fatal("the key is visible")
				}
				n := sweep(t, b)
				if n != 1 {
					t.Errorf("%d leftovers, want the temporary file", n)
				}
				names := entries(dir)
				if len(names) > 0 {
					t.Errorf("Sweep has left %q", names)
				}
			})
		}
	}
}

// TestKilledWhileCommitting kills the child between the last byte and the answer, and checks that the object is
// complete or missing.
func TestKilledWhileCommitting(t *testing.T) {
	committed := 0
	for i := range 20 {
		dir := t.TempDir()
		after := time.Duration(i/2) * 500 * time.Microsecond
		kill(t, order{Do: "put", Dir: dir, At: childSize, IfAbsent: i%2 == 0}, after)
		b := open(t, dir)
		p := content(t, b)
		if p != nil && !slices.Equal(p, childContent()) {
			t.Fatalf("%d bytes of %d are visible", len(p), childSize)
		}
		sweep(t, b)
		want := []string{}
		if p != nil {
			committed++
			want = []string{"a", "a/b", "a/b/key"}
		}
		names := entries(dir)
		if !slices.Equal(names, want) {
			t.Errorf("after Sweep there is %q, want %q", names, want)
		}
	}
	t.Logf("%d of 20 were committed", committed)
}

// kill runs a child until it reports that it has reached the point, and kills it there or a moment later.
func kill(t *testing.T, o order, after time.Duration) {
	t.Helper()
	cmd := child(t, o)
	in, err := cmd.StdinPipe() // held open, because the child waits for it
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "reached\n" {
		t.Errorf("the child says %q, %v", line, err)
	}
	time.Sleep(after)      // not for an event, but to die somewhere else each time
	_ = cmd.Process.Kill() // it may have ended
	_ = cmd.Wait()
}

// content returns the child's object as every method sees it, or nil if it is missing.
func content(t *testing.T, b *file.Bucket) []byte {
	t.Helper()
	_, statErr := b.Stat(t.Context(), "a/b/key")
	listed := 0
	for _, err := range b.List(t.Context(), storage.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		listed++
	}
	r, _, err := b.Open(t.Context(), "a/b/key", storage.OpenOptions{})
	if errors.Is(err, storage.ErrNotExist) && errors.Is(statErr, storage.ErrNotExist) && listed == 0 {
		return nil
	}
	if err != nil || statErr != nil || listed != 1 {
		t.Fatalf("Open: %v, Stat: %v, List: %d objects", err, statErr, listed)
	}
	defer r.Close()
	p, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func sweep(t *testing.T, b *file.Bucket) (pieces int) {
	t.Helper()
	for piece, err := range b.Leftovers(t.Context(), "a/b/") {
		if err != nil {
			t.Fatal(err)
		}
		err := b.Sweep(t.Context(), piece)
		if err != nil {
			t.Fatal(err)
		}
		pieces++
	}
	return pieces
}

func runChild(t *testing.T, cmd *exec.Cmd) report {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("child: %v", err)
	}
	var r report
	err = json.Unmarshal(out, &r)
	if err != nil {
		t.Fatalf("child says %q: %v", out, err)
	}
	return r
}

func TestFullDisk(t *testing.T) {
	if syscall.Geteuid() != 0 {
		skip(t, "only root can mount a small file system")
	}
	dir := t.TempDir()
	cmd := child(t, order{Do: "full", Dir: dir})
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // the mount belongs to the child alone
	r := runChild(t, cmd)
	why := r["no mount"]
	if why != "" {
		skip(t, "no tmpfs can be mounted: "+why)
	}
	for _, part := range []string{`"a/b/key"`, dir, "no space left on device"} {
		if !strings.Contains(r["error"], part) {
			t.Errorf("error %q does not name %s", r["error"], part)
		}
	}
	delete(r, "error")
	want := report{
		"old": "<nil>", "is ENOSPC": "true", "replace is ENOSPC": "true", "old is kept": "true", "entries": "[old]",
		"what fits": "<nil>",
	}
	diff := cmp.Diff(want, r)
	if diff != "" {
		t.Error(diff)
	}
}

func TestDenied(t *testing.T) {
	r := runChild(t, child(t, order{Do: "denied", Dir: t.TempDir()}))
	for _, verb := range []string{"Open a directory", "Put", "Open", "Stat", "Delete", "List", "Leftovers"} {
		if r[verb] != "denied" {
			t.Errorf("%s: %q", verb, r[verb])
		}
	}
}
