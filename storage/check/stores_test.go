package check_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/stores"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// store is a bucket of a real server, opened as dr does.
type store struct {
	url string
	b   storage.Bucket
	o   check.Options
}

func openURL(t *testing.T, url string, env []string) store {
	t.Helper()
	objectstores.Setenv(t, env)
	b, err := stores.Open(t.Context(), url, stores.Options{Parallel: stores.DefaultParallel})
	if err != nil {
		t.Fatal(err)
	}
	return store{url: url, b: b, o: check.Options{
		Lock: records.Lock{For: 20 * time.Second},
		AsOf: func(ctx context.Context, at time.Time) (storage.Bucket, error) {
			return stores.Open(ctx, url, stores.Options{AsOf: at})
		},
	}}
}

func (s store) run(t *testing.T, except map[string]check.Verdict) []check.Line {
	t.Helper()
	lines := check.Run(t.Context(), s.b, s.o, nil)
	wantVerdicts(t, lines, except)
	return lines
}

// runGateway is run on versitygw, which compares the version and replaces it in two steps: on a slow machine two writes may succeed.
func (s store) runGateway(t *testing.T, except map[string]check.Verdict) []check.Line {
	t.Helper()
	lines := check.Run(t.Context(), s.b, s.o, nil)
	replaces := line(t, lines, "replaces one version")
	if strings.Contains(replaces.Seen, "have succeeded, not 1") {
		except = maps.Clone(except)
		except[replaces.Name] = check.Note
	}
	wantVerdicts(t, lines, except)
	return lines
}

// wantOnlyLocked fails unless only the locked object is left, and no piece of an upload.
func (s store) wantOnlyLocked(t *testing.T) {
	t.Helper()
	got := left(t, s.b)
	if len(got) != 1 || !strings.HasSuffix(got[0], "/locked") {
		t.Errorf("left are %q, want the locked object", got)
	}
}

// TestS3WithLocks accounts for versitygw, which dates a replaced version by its replacement, so that --as-of does not
// find it.
func TestS3WithLocks(t *testing.T) {
	server := objectstores.S3(t)
	s := openURL(t, server.URL(server.Bucket(t, objectstores.Versioned, objectstores.Locks), "some/where"), server.Env())
	lines := s.runGateway(t, map[string]check.Verdict{"versioning": check.Wanting})
	wantSaid(t, line(t, lines, "lock holds"), "has refused to delete a locked object")
	wantSaid(t, line(t, lines, "versioning"), "a wrong time")
	s.wantOnlyLocked(t)
}

func TestMinio(t *testing.T) {
	server := objectstores.Minio(t)
	s := openURL(t, server.URL(server.Bucket(t, objectstores.Versioned, objectstores.Locks), ""), server.Env())
	s.o.Lock.Compliance = true
	s.run(t, nil)
	s.wantOnlyLocked(t)
}

func TestS3WithoutVersions(t *testing.T) {
	server := objectstores.S3(t)
	s := openURL(t, server.URL(server.Bucket(t), ""), server.Env())
	lines := s.runGateway(t, map[string]check.Verdict{"lock holds": check.Wanting, "versioning": check.Note})
	wantSaid(t, line(t, lines, "versioning"), "switch the bucket's versioning on")
	wantLeft(t, s.b)
}

// TestS3AppendOnly checks that a caller without the right to delete gets notes and no failures.
func TestS3AppendOnly(t *testing.T) {
	server := objectstores.S3(t)
	bucket := server.Bucket(t)
	server = server.As(t, bucket, objectstores.NoDelete)
	s := openURL(t, server.URL(bucket, ""), server.Env())
	s.o.Lock = records.Lock{}
	s.runGateway(t, map[string]check.Verdict{
		"lock holds": check.NotRun, "versioning": check.Note, "can delete": check.Note, "cleaned up": check.Note,
	})
}

func TestS3ReadOnly(t *testing.T) {
	server := objectstores.S3(t)
	bucket := server.Bucket(t)
	server = server.As(t, bucket, objectstores.ReadOnly)
	s := openURL(t, server.URL(bucket, ""), server.Env())
	lines := check.Run(t.Context(), s.b, s.o, nil)
	wantLine(t, line(t, lines, "can create"), check.Wanting, "s3:PutObject", "give these credentials the right")
	wantLine(t, line(t, lines, "checksum"), check.NotRun, "can create")
	wantLeft(t, s.b)
}

func TestS3NoBucket(t *testing.T) {
	server := objectstores.S3(t)
	s := openURL(t, server.URL("there-is-no-such-bucket", ""), server.Env())
	lines := check.Run(t.Context(), s.b, s.o, nil)
	wantLine(t, line(t, lines, "reachable"), check.Wanting, "does not exist", "create the bucket")
	wantLine(t, line(t, lines, "cleaned up"), check.NotRun)
}

func TestGCS(t *testing.T) {
	server := objectstores.GCS(t)
	s := openURL(t, server.URL(server.Bucket(t, objectstores.Versioned, objectstores.Locks), "some/where"), server.Env(t))
	s.run(t, nil)
	s.wantOnlyLocked(t)
}

// TestGCSAppendOnly accounts for GCS, where overwriting needs the right to delete.
func TestGCSAppendOnly(t *testing.T) {
	server := objectstores.GCS(t)
	bucket := server.Bucket(t)
	server = server.As(objectstores.NoDelete)
	s := openURL(t, server.URL(bucket, ""), server.Env(t))
	s.o.Lock = records.Lock{}
	s.run(t, map[string]check.Verdict{
		"lock holds": check.NotRun, "replaces in one step": check.Note, "replaces one version": check.NotRun, "pinned reads": check.NotRun,
		"versioning": check.NotRun, "can delete": check.Note, "cleaned up": check.Note,
	})
}

// TestAzure accounts for Azurite, which has neither locks nor versions.
func TestAzure(t *testing.T) {
	server := objectstores.Azure(t)
	s := openURL(t, server.URL(server.Bucket(t), "some/where"), server.Env())
	lines := s.run(t, map[string]check.Verdict{"lock holds": check.Wanting, "versioning": check.Note})
	wantSaid(t, line(t, lines, "lock holds"), "version-level immutability")
	wantLeft(t, s.b)
}
