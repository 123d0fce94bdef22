package storage_test

import (
	"errors"
	"io"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
)

// TestLoanEnds checks that an HTTP client which continues to read after its request has failed does not get the
// buffer's next content.
func TestLoanEnds(t *testing.T) {
	buffer := []byte("content")
	body := storage.Lend(buffer)
	p := make([]byte, 3)
	if _, err := io.ReadFull(body, p); err != nil || string(p) != "con" {
		t.Fatalf("%q, %v", p, err)
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	body.End()
	copy(buffer, "another")
	if n, err := body.Read(p); n > 0 || !errors.Is(err, storage.ErrEnded) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if _, err := body.Seek(0, io.SeekStart); !errors.Is(err, storage.ErrEnded) {
		t.Errorf("Seek: %v", err)
	}
}
