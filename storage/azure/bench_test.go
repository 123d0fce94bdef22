package azure_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/azure"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

const benchSize = 16 << 20

// benchmark returns the two candidates on one server: this package's bucket and the SDK's client.
func benchmark(b *testing.B) (*azure.Bucket, *container.Client) {
	b.Helper()
	s := objectstores.AzurePlain(b)
	for _, entry := range s.Env() {
		name, value, _ := strings.Cut(entry, "=")
		b.Setenv(name, value)
	}
	name := s.Bucket(b)
	c := azure.Config{Account: s.Account, Container: name, Endpoint: s.Endpoint, Transport: newTransport(b, s.CAFile)}
	return open(b, c), s.Client(b).ServiceClient().NewContainerClient(name)
}

// BenchmarkPut compares Put with the SDK's UploadStream, with the same size of parts and number of workers.
func BenchmarkPut(b *testing.B) {
	bucket, sdk := benchmark(b)
	p := noise(benchSize)
	b.Run("bucket", func(b *testing.B) {
		b.SetBytes(benchSize)
		for b.Loop() {
			_, err := bucket.Put(b.Context(), "bucket", bytes.NewReader(p), storage.PutOptions{})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sdk", func(b *testing.B) {
		b.SetBytes(benchSize)
		o := &blockblob.UploadStreamOptions{BlockSize: 8 << 20, Concurrency: 4}
		for b.Loop() {
			_, err := sdk.NewBlockBlobClient("sdk").UploadStream(b.Context(), bytes.NewReader(p), o)
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOpen compares Open with the SDK's DownloadStream.
func BenchmarkOpen(b *testing.B) {
	bucket, sdk := benchmark(b)
	_, err := bucket.Put(b.Context(), "key", bytes.NewReader(noise(benchSize)), storage.PutOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("bucket", func(b *testing.B) {
		b.SetBytes(benchSize)
		for b.Loop() {
			r, _, err := bucket.Open(b.Context(), "key", storage.OpenOptions{})
			drain(b, r, err)
		}
	})
	b.Run("sdk", func(b *testing.B) {
		b.SetBytes(benchSize)
		for b.Loop() {
			resp, err := sdk.NewBlobClient("key").DownloadStream(b.Context(), nil)
			drain(b, resp.Body, err)
		}
	})
}

func drain(b *testing.B, r io.ReadCloser, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	n, err := io.Copy(io.Discard, r)
	if err != nil || n != benchSize || r.Close() != nil {
		b.Fatalf("%d bytes, %v", n, err)
	}
}
