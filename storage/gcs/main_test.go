package gcs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/gcs"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/storage/transport"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

const chunk = 256 << 10 // the smallest that the protocol allows

// connections is shared by the tests, as most of them open many Buckets.
var connections *transport.Transport

func TestMain(m *testing.M) {
	isClient, err := asClient()
	if isClient {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	connections, err = transport.New("")
	if err != nil {
		panic(err)
	}
	os.Exit(objectstores.Main(m))
}

// server returns the store, with its owner's credentials in the environment of the test.
func server(t *testing.T) *objectstores.GCSServer {
	t.Helper()
	s := objectstores.GCS(t)
	objectstores.Setenv(t, s.Env(t))
	return s
}

// open opens a bucket on s, with small values for the empty fields of c.
func open(t *testing.T, s *objectstores.GCSServer, bucket string, c gcs.Config) *gcs.Bucket {
	t.Helper()
	c.Bucket = bucket
	if c.Endpoint == "" {
		c.Endpoint = s.Endpoint
	}
	if c.Transport == nil {
		c.Transport = connections
	}
	if c.ChunkSize == 0 {
		c.ChunkSize = chunk
	}
	b, err := gcs.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestContract(t *testing.T) {
	s := server(t)
	storagetest.Run(t, func(t *testing.T) storage.Bucket {
		return open(t, s, s.Bucket(t, objectstores.Locks), gcs.Config{})
	}, storagetest.Options{PartSizes: []int{chunk}, NoVersions: true})
}

func TestContractWithVersions(t *testing.T) {
	s := server(t)
	storagetest.Run(t, func(t *testing.T) storage.Bucket {
		return open(t, s, s.Bucket(t, objectstores.Locks, objectstores.Versioned), gcs.Config{})
	}, storagetest.Options{PartSizes: []int{chunk}, NoReturn: true})
}

func TestContractWithoutLocks(t *testing.T) {
	s := server(t)
	storagetest.Run(t, func(t *testing.T) storage.Bucket {
		return open(t, s, s.Bucket(t), gcs.Config{PageSize: 7})
	}, storagetest.Options{PartSizes: []int{chunk}, NoVersions: true, NoLocks: true})
}

func TestContractBehindDecorators(t *testing.T) {
	s := server(t)
	storagetest.Run(t, func(t *testing.T) storage.Bucket {
		var b storage.Bucket = open(t, s, s.Bucket(t, objectstores.Locks), gcs.Config{})
		b = storage.WithRetry(b, storage.RetryPolicy{Attempts: 3, Base: time.Millisecond, Max: 10 * time.Millisecond})
		b = storage.WithLimit(b, storage.Limits{Up: rate.NewLimiter(1<<30, 1<<20), Down: rate.NewLimiter(1<<30, 1<<20)})
		return storage.WithPrefix(b, "some/prefix")
	}, storagetest.Options{PartSizes: []int{chunk}, NoVersions: true})
}

// content returns n random bytes that depend on seed.
func content(seed byte, n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(p) // never fails
	return p
}

func put(t *testing.T, b storage.Bucket, key string, p []byte, o storage.PutOptions) storage.Object {
	t.Helper()
	obj, err := b.Put(t.Context(), key, bytes.NewReader(p), o)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func get(t *testing.T, b storage.Bucket, key string, o storage.OpenOptions) []byte {
	t.Helper()
	r, _, err := b.Open(t.Context(), key, o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := io.ReadAll(r)
	err = errors.Join(err, r.Close())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wantContent(t *testing.T, b storage.Bucket, key string, want []byte) {
	t.Helper()
	got := get(t, b, key, storage.OpenOptions{})
	if !bytes.Equal(got, want) {
		t.Errorf("%q has %d bytes that are not the %d expected", key, len(got), len(want))
	}
}

func wantAbsent(t *testing.T, b storage.Bucket, key string) {
	t.Helper()
	obj, err := b.Stat(t.Context(), key)
	if !errors.Is(err, storage.ErrNotExist) {
		t.Errorf("Stat of %q, which should not be there: %+v, %v", key, obj, err)
	}
}

func keys(t *testing.T, b storage.Bucket, o storage.ListOptions) []string {
	t.Helper()
	var all []string
	for obj, err := range b.List(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, obj.Key)
	}
	return all
}
