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

// keyOurs and keyTheirs make each side read the object that it has written.
const (
	keyOurs   = "ours"
	keyTheirs = "theirs"
)

// openStore returns the store that a user gets with the URL and with --parallel.
func openStore(t testing.TB, url string, parallel int) storage.Bucket {
	b, err := stores.Open(t.Context(), url, stores.Options{Parallel: parallel})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// setenv sets credentials, and SSL_CERT_FILE, by which the SDKs' own HTTP clients trust the servers' certificate.
func setenv(t testing.TB, entries []string) {
	for _, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")
		err := os.Setenv(name, value)
		if err != nil {
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

// compareS3 uses TLS. With an endpoint our default is no checksums, and over TLS the signature does not cover the
// content either. The SDK is configured the same way, because by default it adds a CRC32; its manager still requests
// the checksums of the objects that it reads, of which the store has none.
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

// inMemory accepts data at any offset: a reader that needs it in order has to keep it somewhere.
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

// compareAzure uses TLS. dr sends a CRC64 with each block, and so does the SDK by configuration. Neither checks one
// when it reads.
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

// compareGCS uses plain http, the only protocol of the fake. Both sides send a CRC32C, which dr computes a second time
// to compare it with the store's answer. When reading, the SDK checks it; dr does not, because it reads in ranges.
func compareGCS(t testing.TB, size int64) *compared {
	server := objectstores.GCS(t)
	setenv(t, server.Env(t))
	bucket := server.Bucket(t)
	sdk := gcsSide{object: server.Client(t).Bucket(bucket).Object(keyTheirs), size: size}
	c := &compared{name: google, size: size, ours: ours(t, server.URL(bucket, ""), size)}
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
