package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	cloud "cloud.google.com/go/storage"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/stores"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// partSize is that of our stores, and so of the SDKs, which also have as many workers.
const partSize = 8 << 20

// keyOurs and keyTheirs are such that each side reads what it has written.
const (
	keyOurs   = "ours"
	keyTheirs = "theirs"
)

// openStore is what a user gets by the URL, and by --parallel.
func openStore(t testing.TB, url string, parallel int) storage.Bucket {
	b, err := stores.Open(t.Context(), url, stores.Options{Parallel: parallel})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// setenv is for credentials, and for SSL_CERT_FILE, by which the SDKs' own HTTP clients trust the servers' certificate.
func setenv(t testing.TB, entries []string) {
	for _, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")
		if err := os.Setenv(name, value); err != nil {
			t.Fatal(err)
		}
	}
}

// s3Side is Amazon's SDK.
type s3Side struct {
	bucket, key string
	size        int64
	client      *s3.Client
	manager     *transfermanager.Client
}

// compareS3 is over TLS. Our default where an endpoint is given is no checksums, and over TLS the signature is not over
// the content either. The SDK is told the same, since by itself it adds a CRC32; its manager still asks for the
// checksums of what it reads, of which the store has none.
func compareS3(t testing.TB, size int64) *compared {
	server := objectstores.S3(t)
	setenv(t, append(server.Env(), "SSL_CERT_FILE="+server.CAFile))
	loaded, err := config.LoadDefaultConfig(t.Context(), config.WithRegion(server.Region))
	if err != nil {
		t.Fatal(err)
	}
	sdk := s3Side{bucket: server.Bucket(t), key: keyTheirs, size: size}
	sdk.client = s3.NewFromConfig(loaded, func(o *s3.Options) {
		o.BaseEndpoint, o.UsePathStyle = &server.Endpoint, true
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	sdk.manager = transfermanager.New(sdk.client, func(o *transfermanager.Options) {
		o.PartSizeBytes, o.Concurrency = partSize, stores.DefaultParallel
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.DisableChecksumValidation = true
	})
	c := &compared{name: "S3", size: size, ours: ours(t, server.URL(sdk.bucket, ""), size)}
	c.puts = []*side{{name: "transfermanager UploadObject", do: sdk.upload}}
	c.gets = []*side{
		{name: "s3 GetObject", do: sdk.get},
		{name: "transfermanager GetObject", do: sdk.getManaged},
		{name: "transfermanager DownloadObject", do: sdk.download},
	}
	return c
}

func (s s3Side) upload(ctx context.Context) error {
	_, err := s.manager.UploadObject(ctx, &transfermanager.UploadObjectInput{
		Bucket: &s.bucket, Key: &s.key, Body: newNoise(s.size),
	})
	return err
}

func (s s3Side) get(ctx context.Context) error {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &s.key})
	if err != nil {
		return err
	}
	return errors.Join(drain(out.Body, s.size), out.Body.Close())
}

func (s s3Side) getManaged(ctx context.Context) error {
	out, err := s.manager.GetObject(ctx, &transfermanager.GetObjectInput{Bucket: &s.bucket, Key: &s.key})
	if err != nil {
		return err
	}
	return drain(out.Body, s.size)
}

func (s s3Side) download(ctx context.Context) error {
	came := inMemory{p: make([]byte, s.size)}
	_, err := s.manager.DownloadObject(ctx, &transfermanager.DownloadObjectInput{
		Bucket: &s.bucket, Key: &s.key, WriterAt: &came,
	})
	if err == nil && came.Load() != s.size {
		err = fmt.Errorf("%d of %d bytes came", came.Load(), s.size)
	}
	return err
}

// inMemory takes what comes at any offset: whoever wants it in order has to keep it somewhere.
type inMemory struct {
	p []byte
	atomic.Int64
}

func (m *inMemory) WriteAt(p []byte, offset int64) (int, error) {
	m.Add(int64(len(p)))
	return copy(m.p[offset:], p), nil
}

// azureSide is Azure's SDK.
type azureSide struct {
	container string
	size      int64
	client    *azblob.Client
}

// compareAzure is over TLS. We send a CRC64 with each block, and so does the SDK, being told to. Neither has one of
// what it reads.
func compareAzure(t testing.TB, size int64) *compared {
	server := objectstores.Azure(t)
	setenv(t, append(server.Env(), "SSL_CERT_FILE="+server.CAFile))
	key, err := azblob.NewSharedKeyCredential(server.Account, server.Key)
	if err != nil {
		t.Fatal(err)
	}
	sdk := azureSide{container: server.Bucket(t), size: size}
	sdk.client, err = azblob.NewClientWithSharedKeyCredential(server.Endpoint, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &compared{name: "Azure", size: size, ours: ours(t, server.URL(sdk.container, ""), size)}
	c.puts = []*side{{name: "azblob UploadStream", do: sdk.upload}}
	c.gets = []*side{{name: "azblob DownloadStream", do: sdk.download}}
	return c
}

func (a azureSide) upload(ctx context.Context) error {
	_, err := a.client.UploadStream(ctx, a.container, keyTheirs, newNoise(a.size), &azblob.UploadStreamOptions{
		BlockSize: partSize, Concurrency: stores.DefaultParallel,
		TransactionalValidation: blob.TransferValidationTypeComputeCRC64(),
	})
	return err
}

func (a azureSide) download(ctx context.Context) error {
	out, err := a.client.DownloadStream(ctx, a.container, keyTheirs, nil)
	if err != nil {
		return err
	}
	return errors.Join(drain(out.Body, a.size), out.Body.Close())
}

// gcsSide is Google's SDK.
type gcsSide struct {
	object *cloud.ObjectHandle
	size   int64
}

// compareGCS is over plain http, which is all that the fake speaks. Both sides send a CRC32C, which we compute a second
// time to compare it with the store's answer. What is read is checked by the SDK, and not by us, who read it in ranges.
func compareGCS(t testing.TB, size int64) *compared {
	server := objectstores.GCS(t)
	setenv(t, server.Env(t))
	bucket := server.Bucket(t)
	sdk := gcsSide{object: server.Client(t).Bucket(bucket).Object(keyTheirs), size: size}
	c := &compared{name: "GCS", size: size, ours: ours(t, server.URL(bucket, ""), size)}
	c.puts = []*side{{name: "storage.Writer", do: sdk.put}}
	c.gets = []*side{{name: "storage.Reader", do: sdk.get}}
	return c
}

func (g gcsSide) put(ctx context.Context) error {
	w := g.object.NewWriter(ctx)
	w.ChunkSize = partSize
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, newNoise(g.size), make([]byte, 64<<10))
	return errors.Join(err, w.Close())
}

func (g gcsSide) get(ctx context.Context) error {
	r, err := g.object.NewReader(ctx)
	if err != nil {
		return err
	}
	return errors.Join(drain(r, g.size), r.Close())
}
