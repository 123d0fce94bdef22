package azure_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/azure"
	"github.com/etcd-dr/etcd-dr/test/memory"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// A child of this test binary does work that needs a process of its own: to be killed, or to have its memory measured.
const childVariable = "AZURE_TEST_CHILD"

// child runs the value of childVariable: "hang container endpoint" or "carry container endpoint".
func child(job string) error {
	var verb, name, endpoint string
	_, err := fmt.Sscan(job, &verb, &name, &endpoint)
	if err != nil {
		return err
	}
	c := azure.Config{Container: name, Endpoint: endpoint}
	if verb == "hang" {
		c.Parts = small
	}
	b, err := azure.Open(context.Background(), c)
	if err != nil {
		return err
	}
	if verb == "hang" {
		src := io.MultiReader(bytes.NewReader(noise(3*small.Size)), hanging{})
		_, err := b.Put(context.Background(), "dir/key", src, storage.PutOptions{IfAbsent: true})
		return err
	}
	return carry(b)
}

type hanging struct{}

func (hanging) Read([]byte) (int, error) { select {} }

// large returns the size of the large object in bytes: a gigabyte in a soak.
func large() int64 {
	if soak.On() {
		return 1 << 30
	}
	return 256 << 20
}

// carry puts and reads a large object and compares the digests.
func carry(b *azure.Bucket) error {
	up, down := sha256.New(), sha256.New()
	src := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{9}), large()), up)
	_, err := b.Put(context.Background(), "large", src, storage.PutOptions{SizeHint: large()})
	if err != nil {
		return err
	}
	err = fetch(b, down)
	if err != nil {
		return err
	}
	if !bytes.Equal(up.Sum(nil), down.Sum(nil)) {
		return errors.New("what came down is not what went up")
	}
	return nil
}

func fetch(b *azure.Bucket, into hash.Hash) error {
	r, _, err := b.Open(context.Background(), "large", storage.OpenOptions{})
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(into, r)
	return err
}

// start runs a child with the server's credentials.
func start(t *testing.T, s *objectstores.AzureServer, verb, name string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	job := childVariable + "=" + strings.Join([]string{verb, name, s.Endpoint}, " ")
	cmd.Env = append(append(os.Environ(), s.Env()...), job)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Start()
	if err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

// TestSoakLargeObject is TestLargeObject with a gigabyte.
func TestSoakLargeObject(t *testing.T) {
	soak.Only(t, "takes minutes")
	TestLargeObject(t)
}

// TestLargeObject checks that memory depends on the parts and not on the object.
func TestLargeObject(t *testing.T) {
	s := objectstores.AzurePlain(t)
	cmd, out := start(t, s, "carry", s.Bucket(t))
	peak := memory.Watch(cmd.Process.Pid, memory.Alone)
	err := cmd.Wait()
	got := peak()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const parts, limit = (4 + 1) * 8 << 20, (4+1)*8<<20 + 60<<20
	if got < parts || got > limit {
		t.Errorf("the peak was %d MiB, want %d to %d", got>>20, parts>>20, limit>>20)
	}
	t.Logf("%d MiB up and down, peak %d MiB", large()>>20, got>>20)
}

func TestKilledPut(t *testing.T) {
	_, b, look := plain(t)
	name := look.URL()[strings.LastIndex(look.URL(), "/")+1:]
	began := time.Now().Add(-2 * time.Second) // the times of blocks have whole seconds
	cmd, out := start(t, objectstores.AzurePlain(t), "hang", name)
	for tries := 0; blocksOf(t, look, "dir/key") < 3; tries++ {
		if tries == 1000 {
			t.Fatalf("no blocks of the child: %s", out)
		}
		time.Sleep(10 * time.Millisecond)
	}
	err := cmd.Process.Kill()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // the error is that it was killed
	wantAbsent(t, b, "dir/key")
	for piece, err := range b.Leftovers(t.Context(), "dir/") {
		if err != nil || piece.Key != "dir/key" || piece.ModTime.Before(began) || piece.ModTime.After(time.Now()) {
			t.Errorf("Leftovers: %+v, %v", piece, err)
		}
		// The piece as it was listed before its last block arrived.
		err := b.Sweep(t.Context(), storage.Object{Key: piece.Key, ModTime: began})
		if err != nil {
			t.Error(err)
		}
		n := blocksOf(t, look, "dir/key")
		if n != 3 {
			t.Errorf("%d blocks of a Put that went on are left", n)
		}
	}
	got := sweepAll(t, b, "dir/")
	if got != 1 {
		t.Errorf("%d leftovers", got)
	}
	wantPutAgain(t, b, look, noise(3*small.Size))
}

func TestPages(t *testing.T) {
	c, _, _ := plain(t)
	c.PageSize = 333
	b := open(t, c)
	const n = 2500
	key := func(i int) string { return fmt.Sprintf("many/%05d", i) }
	var workers sync.WaitGroup
	for first := range 8 {
		workers.Go(func() {
			for i := first; i < n; i += 8 {
				_, err := b.Put(t.Context(), key(i), strings.NewReader(key(i)), storage.PutOptions{})
				if err != nil {
					t.Errorf("%s: %v", key(i), err)
					return
				}
			}
		})
	}
	workers.Wait()
	for _, from := range []int{0, 1, 332, 333, 2000, n} {
		o := storage.ListOptions{Prefix: "many/"}
		if from > 0 {
			o.After = key(from - 1)
		}
		next := from
		for obj, err := range b.List(t.Context(), o) {
			if err != nil || obj.Key != key(next) || obj.Size != 10 {
				t.Fatalf("object %d is %+v, %v", next, obj, err)
			}
			next++
		}
		if next != n {
			t.Errorf("from %d the listing ends before %d", from, next)
		}
	}
}
