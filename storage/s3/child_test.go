package s3_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/s3"
	"github.com/etcd-dr/etcd-dr/storage/transport"
	"github.com/etcd-dr/etcd-dr/test/memory"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

const childEnv = "ETCD_DR_S3_TEST_CHILD"

// childJob is the work of this binary when a test runs it again, in a process that can be killed or measured.
type childJob struct {
	Bucket, Region, Endpoint, CAFile string
	Parts                            storage.Parts
	Size                             int64 // bytes to put and to read again
	Hang                             bool  // the source never ends after Size bytes
}

// child runs the job in text and prints the digest of the bytes that it has stored and read back.
func child(text string) {
	digest, err := runJob(text)
	if err != nil {
		panic(err)
	}
	fmt.Println(digest)
}

func runJob(text string) (string, error) {
	var o childJob
	err := json.Unmarshal([]byte(text), &o)
	if err != nil {
		return "", err
	}
	rt, err := transport.New(o.CAFile)
	if err != nil {
		return "", err
	}
	ctx := context.Background()
	b, err := s3.Open(ctx, s3.Config{
		Bucket: o.Bucket, Region: o.Region, Endpoint: o.Endpoint, PathStyle: true, Transport: rt, Parts: o.Parts,
	})
	if err != nil {
		return "", err
	}
	sent, got := sha256.New(), sha256.New()
	src := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{}), o.Size), sent)
	if o.Hang {
		src = io.MultiReader(src, hang{})
	}
	_, err = b.Put(ctx, "dir/key", src, storage.PutOptions{IfAbsent: true, SizeHint: o.Size})
	if err != nil {
		return "", err
	}
	r, _, err := b.Open(ctx, "dir/key", storage.OpenOptions{})
	if err != nil {
		return "", err
	}
	defer r.Close()
	n, err := io.Copy(got, r)
	if err != nil || n != o.Size {
		return "", fmt.Errorf("%d bytes came back: %w", n, err)
	}
	up, down := sent.Sum(nil), got.Sum(nil)
	if string(up) != string(down) {
		return "", fmt.Errorf("%x went up, %x came down", up, down)
	}
	return fmt.Sprintf("%x", sent.Sum(nil)), nil
}

// hang is a reader whose Read never returns.
type hang struct{}

func (hang) Read([]byte) (int, error) { select {} }

func start(t *testing.T, server *objectstores.S3Server, o childJob) (*exec.Cmd, io.Reader) {
	t.Helper()
	o.Region, o.Endpoint, o.CAFile = server.Region, server.Endpoint, server.CAFile
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), server.Env()...), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	if err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// TestKilledPut checks that the parts of a killed process are invisible, and that another process finds and removes
// them.
func TestKilledPut(t *testing.T) {
	server := objectstores.S3(t)
	bucket := server.Bucket(t)
	b := open(t, config(t, server, bucket))
	cmd, _ := start(t, server, childJob{Bucket: bucket, Parts: parts, Size: 3 * part, Hang: true})
	for waited := 0; sizeOfLeftovers(t, b) < 2*part; waited++ {
		if waited == 1000 {
			t.Fatal("no parts of the running Put")
		}
		time.Sleep(20 * time.Millisecond)
	}
	err := cmd.Process.Kill()
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if err == nil {
		t.Fatal("it has ended by itself")
	}
	_, err = b.Stat(t.Context(), "dir/key")
	wantError(t, "Stat", err, storage.ErrNotExist)
	for piece, err := range b.Leftovers(t.Context(), "dir/") {
		if err != nil || piece.Key != "dir/key" || time.Since(piece.ModTime) > time.Minute {
			t.Fatalf("%+v, %v", piece, err)
		}
		err := b.Sweep(t.Context(), piece)
		if err != nil {
			t.Fatal(err)
		}
	}
	wantNothing(t, b, "dir/key")
	put(t, b, "dir/key", content(1, 10))
}

func sizeOfLeftovers(t *testing.T, b *s3.Bucket) (size int64) {
	t.Helper()
	for piece, err := range b.Leftovers(t.Context(), "dir/key") {
		if err != nil {
			t.Fatal(err)
		}
		size += piece.Size
	}
	return size
}

// TestMemory checks that 256 MiB go up and down in the memory of the parts, plus a little for the rest of the process.
func TestMemory(t *testing.T) { carries(t, 256<<20) }

// TestSoakMemory checks that a gigabyte needs no more.
func TestSoakMemory(t *testing.T) {
	soak.Only(t, "takes minutes")
	carries(t, 1<<30)
}

func carries(t *testing.T, bytes int64) {
	t.Helper()
	const megabyte, workers, size = 1e6, 4, 8 << 20
	server := objectstores.S3(t)
	bucket := server.Bucket(t)
	cmd, out := start(t, server, childJob{Bucket: bucket, Size: bytes})
	peak := memory.Watch(cmd.Process.Pid, memory.Alone)
	digest, rerr := bufio.NewReader(out).ReadString('\n')
	took := peak()
	err := cmd.Wait()
	if err != nil || rerr != nil || len(digest) != 65 {
		t.Fatalf("%q, %v, %v", digest, rerr, err)
	}
	t.Logf("%d MB", took/megabyte)
	limit := int64((workers+1)*size + 60*megabyte)
	if took > limit {
		t.Errorf("%d bytes of memory, allowed are %d", took, limit)
	}
}
