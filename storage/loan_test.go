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
	_, err := io.ReadFull(body, p)
	if err != nil || string(p) != "con" {
		t.Fatalf("%q, %v", p, err)
	}
	_, err = body.Seek(0, io.SeekStart)
	if err != nil {
		t.Fatal(err)
	}
	body.End()
	copy(buffer, "another")
	n, err := body.Read(p)
	if n > 0 || !errors.Is(err, storage.ErrEnded) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	_, err = body.Seek(0, io.SeekStart)
	if !errors.Is(err, storage.ErrEnded) {
		t.Errorf("Seek: %v", err)
	}
}
