package s3_test

import (
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/s3"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// opener returns a function that opens a Bucket over an empty bucket of a server.
func opener(
	server *objectstores.S3Server, change func(*s3.Config), over func(storage.Bucket) storage.Bucket,
	options ...objectstores.BucketOption,
) func(t *testing.T) storage.Bucket {
	return func(t *testing.T) storage.Bucket {
		c := config(t, server, server.Bucket(t, options...))
		c.PageSize = 100
		change(&c)
		return over(open(t, c))
	}
}

func bare(b storage.Bucket) storage.Bucket { return b }

func stacked(b storage.Bucket) storage.Bucket {
	b = storage.WithRetry(b, storage.RetryPolicy{Attempts: 3, Base: time.Millisecond, Max: time.Millisecond})
	fast := rate.NewLimiter(1<<40, 1<<20)
	b = storage.WithLimit(b, storage.Limits{Up: fast, Down: fast})
	return storage.WithPrefix(b, "some/where")
}

func asIs(*s3.Config) {}

func withChecksums(c *s3.Config) { c.Checksums = s3.ChecksumsSupported }

// versitygw keeps objects as files. In a versioned bucket it refuses to create a key that was deleted, so versions are
// tested with MinIO only.
var versitygw = storagetest.Options{
	PartSizes: []int{part}, NoVersions: true, NoLocks: true, NoNesting: true, Tick: time.Second,
}

func TestContractVersitygw(t *testing.T) {
	storagetest.Run(t, opener(objectstores.S3(t), asIs, bare), versitygw)
}

func TestContractVersitygwStacked(t *testing.T) {
	storagetest.Run(t, opener(objectstores.S3(t), withChecksums, stacked), versitygw)
}

func TestContractMinioLocked(t *testing.T) {
	server := objectstores.Minio(t)
	storagetest.Run(t, opener(server, withChecksums, bare, objectstores.Locks),
		storagetest.Options{PartSizes: []int{part}, Tick: time.Second})
}
