package s3_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdkconfig "github.com/aws/aws-sdk-go-v2/config"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/s3"
	"github.com/etcd-dr/etcd-dr/storage/transport"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

const benchSize = 16 << 20

// sides returns this package's bucket and the SDK's plain client over the same transport, and the bucket's name.
func sides(b *testing.B) (*s3.Bucket, *sdk.Client, string) {
	b.Helper()
	server := objectstores.S3(b)
	for _, entry := range server.Env() {
		name, value, _ := strings.Cut(entry, "=")
		b.Setenv(name, value)
	}
	rt, err := transport.New(server.CAFile)
	if err != nil {
		b.Fatal(err)
	}
	name := server.Bucket(b)
	ours, err := s3.Open(b.Context(), s3.Config{
		Bucket: name, Region: server.Region, Endpoint: server.Endpoint, PathStyle: true, Transport: rt,
		Checksums: s3.ChecksumsSupported,
	})
	if err != nil {
		b.Fatal(err)
	}
	loaded, err := sdkconfig.LoadDefaultConfig(b.Context(), sdkconfig.WithRegion(server.Region))
	if err != nil {
		b.Fatal(err)
	}
	loaded.HTTPClient = server.Client(b).Options().HTTPClient
	client := sdk.NewFromConfig(loaded, func(o *sdk.Options) {
		o.BaseEndpoint, o.UsePathStyle = aws.String(server.Endpoint), true
	})
	return ours, client, name
}

func BenchmarkPut(b *testing.B) {
	ours, client, bucket := sides(b)
	p := content(1, benchSize)
	b.Run("dr", func(b *testing.B) {
		defer cpu(b)()
		b.SetBytes(benchSize)
		for b.Loop() {
			_, err := ours.Put(b.Context(), "dr", bytes.NewReader(p), storage.PutOptions{})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sdk", func(b *testing.B) {
		defer cpu(b)()
		b.SetBytes(benchSize)
		for b.Loop() {
			in := &sdk.PutObjectInput{Bucket: &bucket, Key: aws.String("sdk"), Body: bytes.NewReader(p)}
			_, err := client.PutObject(b.Context(), in)
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	ours, client, bucket := sides(b)
	_, err := ours.Put(b.Context(), "key", bytes.NewReader(content(1, benchSize)), storage.PutOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("dr", func(b *testing.B) {
		defer cpu(b)()
		b.SetBytes(benchSize)
		for b.Loop() {
			r, _, err := ours.Open(b.Context(), "key", storage.OpenOptions{})
			drain(b, r, err)
		}
	})
	b.Run("sdk", func(b *testing.B) {
		defer cpu(b)()
		b.SetBytes(benchSize)
		for b.Loop() {
			out, err := client.GetObject(b.Context(), &sdk.GetObjectInput{Bucket: &bucket, Key: aws.String("key")})
			if err != nil {
				b.Fatal(err)
			}
			drain(b, out.Body, nil)
		}
	})
}

// cpu reports the CPU time that this process has used for each operation, without the server's.
func cpu(b *testing.B) func() {
	before := used(b)
	return func() { b.ReportMetric(float64(used(b)-before)/float64(b.N), "cpu-ns/op") }
}

func used(b *testing.B) int64 {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	if err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func drain(b *testing.B, r io.ReadCloser, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	n, err := io.Copy(io.Discard, r)
	if err != nil || n != benchSize || r.Close() != nil {
		b.Fatal(fmt.Errorf("%d bytes: %w", n, err))
	}
}
