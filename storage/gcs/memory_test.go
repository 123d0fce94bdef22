package gcs_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/gcs"
	"github.com/etcd-dr/etcd-dr/test/memory"
)

// clientOf makes this test binary a client in its own process, whose memory can be measured: it puts an object into the
// bucket of this name and reads it back.
const clientOf = "DR_TEST_GCS_CLIENT_OF"

func client(ctx context.Context, bucket string) error {
	b, err := gcs.Open(ctx, gcs.Config{Bucket: bucket, Endpoint: os.Getenv("DR_TEST_GCS_ENDPOINT")})
	if err != nil {
		return err
	}
	const size = 64<<20 + 4711
	sent, got := sha256.New(), sha256.New()
	source := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), sent)
	_, err = b.Put(ctx, "key", source, storage.PutOptions{IfAbsent: true})
	if err != nil {
		return err
	}
	r, obj, err := b.Open(ctx, "key", storage.OpenOptions{})
	if err != nil {
		return err
	}
	_, err = io.Copy(got, r)
	if err != nil {
		return err
	}
	if obj.Size != size || digest(sent) != digest(got) {
		return fmt.Errorf("sent are %d bytes, digest %s, read %d, %s", size, digest(sent), obj.Size, digest(got))
	}
	return r.Close()
}

func digest(h hash.Hash) string { return fmt.Sprintf("%x", h.Sum(nil)) }

// TestLargeObject checks that a large object goes up and down with equal digests, in memory that does not depend on its
// size.
func TestLargeObject(t *testing.T) {
	s := server(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), clientOf+"="+s.Bucket(t), "DR_TEST_GCS_ENDPOINT="+s.Endpoint)
	cmd.Stderr = t.Output()
	err = cmd.Start()
	if err != nil {
		t.Fatal(err)
	}
	peak := memory.Watch(cmd.Process.Pid, memory.Alone)
	err = cmd.Wait()
	used := peak()
	if err != nil {
		t.Fatal(err)
	}
	if used > (8+60)<<20 && !isRace() {
		t.Errorf("the client takes %d MiB, allowed are a chunk and 60 MiB", used>>20)
	}
	t.Logf("the client takes %d MiB", used>>20)
}

// isRace reports whether this is a binary of -race, which needs several times the memory.
func isRace() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// asClient runs client if clientOf is set.
func asClient() (isClient bool, err error) {
	bucket := os.Getenv(clientOf)
	if bucket == "" {
		return false, nil
	}
	return true, client(context.Background(), bucket)
}
