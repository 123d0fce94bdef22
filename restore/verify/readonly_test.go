package verify_test

import (
	"context"
	"io"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/verify"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/file"
)

// readOnly is a bucket that refuses writes.
type readOnly struct {
	storage.Bucket
	err error
}

func (b readOnly) Put(context.Context, string, io.Reader, storage.PutOptions) (storage.Object, error) {
	return storage.Object{}, b.err
}

func mustOpen(t testing.TB, dir string) storage.Bucket {
	t.Helper()
	bucket, err := file.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return bucket
}

func TestServeRefusesAJobThatIsNone(t *testing.T) {
	_, err := verify.Serve(t.Context(), []byte("{"), nil)
	if err == nil {
		t.Error("no error")
	}
}
