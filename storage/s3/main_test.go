package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/s3"
	"github.com/etcd-dr/etcd-dr/storage/transport"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// part is the smallest part size that S3 accepts.
const part = 5 << 20

var parts = storage.Parts{Size: part, Whole: 1 << 20, Workers: 2}

func TestMain(m *testing.M) {
	text := os.Getenv(childEnv)
	if text != "" {
		child(text)
		return
	}
	os.Exit(objectstores.Main(m))
}

// config returns the configuration for a server's bucket, with small parts. It sets the environment to the server's
// credentials.
func config(t *testing.T, server *objectstores.S3Server, bucket string) s3.Config {
	t.Helper()
	objectstores.Setenv(t, server.Env())
	rt, err := transport.New(server.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rt.CloseIdleConnections)
	return s3.Config{
		Bucket: bucket, Region: server.Region, Endpoint: server.Endpoint, PathStyle: true, Transport: rt, Parts: parts,
		Retry: storage.RetryPolicy{Attempts: 6, Base: 10 * time.Millisecond, Max: 200 * time.Millisecond},
	}
}

func open(t *testing.T, c s3.Config) *s3.Bucket {
	t.Helper()
	b, err := s3.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// failing returns c with a transport in which f fails some requests.
func failing(c s3.Config, f *objectstores.FailingTransport) s3.Config {
	f.Base = c.Transport
	c.Transport = f
	return c
}

func content(seed byte, n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(p)
	return p
}

func put(t *testing.T, b storage.Bucket, key string, p []byte) storage.Object {
	t.Helper()
	obj, err := b.Put(t.Context(), key, bytes.NewReader(p), storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func get(t *testing.T, b storage.Bucket, key string) ([]byte, error) {
	t.Helper()
	r, _, err := b.Open(t.Context(), key, storage.OpenOptions{})
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(r)
	return p, errors.Join(err, r.Close())
}

func wantContent(t *testing.T, b storage.Bucket, key string, want []byte) {
	t.Helper()
	p, err := get(t, b, key)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p, want) {
		t.Fatalf("%q has %d bytes, not the %d expected", key, len(p), len(want))
	}
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: error %v, want one that is %v", what, err, want)
	}
	if bytes.ContainsRune([]byte(err.Error()), '\n') {
		t.Errorf("%s: an error of many lines: %v", what, err)
	}
}

// wantNothing fails if the store has the object or parts of it.
func wantNothing(t *testing.T, b *s3.Bucket, key string) {
	t.Helper()
	_, err := b.Stat(t.Context(), key)
	wantError(t, "Stat", err, storage.ErrNotExist)
	wantNoParts(t, b)
}

func wantNoParts(t *testing.T, b *s3.Bucket) {
	t.Helper()
	for piece, err := range b.Leftovers(t.Context(), "") {
		t.Errorf("left over: %+v, %v", piece, err)
	}
}

// is returns a function that matches the requests of one operation.
func is(operation string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		q := r.URL.Query()
		switch operation {
		case "put":
			return r.Method == http.MethodPut && !q.Has("partNumber")
		case "create":
			return r.Method == http.MethodPost && q.Has("uploads")
		case "part":
			return r.Method == http.MethodPut && q.Has("partNumber")
		case "complete":
			return r.Method == http.MethodPost && q.Has("uploadId")
		case "abort":
			return r.Method == http.MethodDelete && q.Has("uploadId")
		case "head":
			return r.Method == http.MethodHead
		case "get":
			return r.Method == http.MethodGet && !q.Has("list-type")
		case "list":
			return r.Method == http.MethodGet && q.Has("list-type")
		case "delete":
			return r.Method == http.MethodDelete && !q.Has("uploadId")
		}
		panic("no operation " + operation)
	}
}

// within returns a context that ends a test which hangs.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// versions returns the number of versions of a key: a Put that was executed twice leaves two.
func versions(t *testing.T, server *objectstores.S3Server, bucket, key string) int {
	t.Helper()
	out, err := server.Client(t).ListObjectVersions(t.Context(), &sdk.ListObjectVersionsInput{
		Bucket: &bucket, Prefix: aws.String(key),
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(out.Versions)
}
