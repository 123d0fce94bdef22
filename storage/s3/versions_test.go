package s3_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/s3"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

func both(t *testing.T) map[string]*objectstores.S3Server {
	return map[string]*objectstores.S3Server{"versitygw": objectstores.S3(t), "minio": objectstores.Minio(t)}
}

// TestAttack plays an attacker with the right to delete, who puts delete markers and own objects over everything.
// Locked versions remain, and AsOf finds them as of a time before the attack. versitygw has lost the times by then.
func TestAttack(t *testing.T) {
	for name, server := range both(t) {
		t.Run(name, func(t *testing.T) {
			c := config(t, server, server.Bucket(t, objectstores.Locks))
			c.PageSize = 2 // so that the versions of one key span several pages
			b := open(t, c)
			want := map[string][]byte{"a/small": content(1, 1000), "a/large": content(2, part+1), "b": content(3, 10)}
			locked := putLocked(t, b, want)
			time.Sleep(1100 * time.Millisecond) // the store's times are in seconds
			before := time.Now()
			time.Sleep(1100 * time.Millisecond)
			attack(t, server, c.Bucket, want)

			wantKeys(t, b, storage.ListOptions{}, []string{"b"})
			wantLocked(t, b, locked, want)
			if name == "minio" {
				wantPast(t, b, before, want)
			}
		})
	}
}

func putLocked(t *testing.T, b *s3.Bucket, contents map[string][]byte) (locked []storage.Object) {
	t.Helper()
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	for key, p := range contents {
		o := storage.PutOptions{IfAbsent: true, RetainUntil: until}
		obj, err := b.Put(t.Context(), key, bytes.NewReader(p), o)
		if err != nil {
			t.Fatal(err)
		}
		locked = append(locked, obj)
	}
	return locked
}

func wantLocked(t *testing.T, b *s3.Bucket, locked []storage.Object, want map[string][]byte) {
	t.Helper()
	for _, obj := range locked {
		err := b.Delete(t.Context(), obj.Key, storage.DeleteOptions{Version: obj.Version})
		wantError(t, "Delete of a locked version", err, storage.ErrLocked)
		r, _, err := b.Open(t.Context(), obj.Key, storage.OpenOptions{Version: obj.Version})
		if err != nil {
			t.Fatal(err)
		}
		p, err := io.ReadAll(r)
		err = errors.Join(err, r.Close())
		if err != nil || !bytes.Equal(p, want[obj.Key]) {
			t.Errorf("%s: %d bytes, %v", obj.Key, len(p), err)
		}
	}
	listed := map[string]int{}
	for kept, err := range b.Versions(t.Context(), storage.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		listed[kept.Key+kept.Version]++
	}
	if len(listed) != 4*len(want) { // each was replaced three times
		t.Errorf("%d versions of %d keys", len(listed), len(want))
	}
	for version, n := range listed {
		if n != 1 {
			t.Errorf("%s is listed %d times", version, n)
		}
	}
	for _, obj := range locked {
		if listed[obj.Key+obj.Version] == 0 {
			t.Errorf("the locked version of %s is not listed", obj.Key)
		}
	}
}

func wantPast(t *testing.T, b *s3.Bucket, at time.Time, want map[string][]byte) {
	t.Helper()
	past, err := storage.AsOf(b, at)
	if err != nil {
		t.Fatal(err)
	}
	wantKeys(t, past, storage.ListOptions{}, slices.Sorted(maps.Keys(want)))
	for key, p := range want {
		wantContent(t, past, key, p)
	}
}

func attack(t *testing.T, server *objectstores.S3Server, bucket string, keys map[string][]byte) {
	t.Helper()
	client := server.Client(t)
	for key := range keys {
		for range 3 {
			in := &sdk.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader("forged")}
			_, err := client.PutObject(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
		}
		if key == "b" {
			continue
		}
		_, err := client.DeleteObject(t.Context(), &sdk.DeleteObjectInput{Bucket: &bucket, Key: &key})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeleteOfLocked checks that Delete refuses a locked object, which a versioned store would only hide.
func TestDeleteOfLocked(t *testing.T) {
	for name, server := range both(t) {
		for _, compliance := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s compliance=%v", name, compliance), func(t *testing.T) {
				c := config(t, server, server.Bucket(t, objectstores.Locks))
				b := open(t, c)
				for size, n := range sizes {
					until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
					o := storage.PutOptions{Compliance: compliance, RetainUntil: until}
					obj, err := b.Put(t.Context(), size, bytes.NewReader(content(1, n)), o)
					if err != nil {
						t.Fatal(err)
					}
					for _, version := range []string{"", obj.Version} {
						err := b.Delete(t.Context(), size, storage.DeleteOptions{Version: version})
						wantError(t, "Delete", err, storage.ErrLocked)
						wantCure(t, "Delete", err, "until "+o.RetainUntil.Format(time.RFC3339))
					}
					wantMode(t, server, c.Bucket, size, compliance)
					wantContent(t, b, size, content(1, n))
				}
			})
		}
	}
}

func wantMode(t *testing.T, server *objectstores.S3Server, bucket, key string, compliance bool) {
	t.Helper()
	out, err := server.Client(t).HeadObject(t.Context(), &sdk.HeadObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	if (out.ObjectLockMode == types.ObjectLockModeCompliance) != compliance || out.ObjectLockMode == "" {
		t.Errorf("the mode is %q", out.ObjectLockMode)
	}
}

// TestDeleteOfUnseenLock checks that a caller who may not see a lock gets ErrLocked from the refusal: 403 with
// versitygw and Amazon, 400 with MinIO.
func TestDeleteOfUnseenLock(t *testing.T) {
	for name, server := range both(t) {
		c := config(t, server, server.Bucket(t, objectstores.Locks))
		obj, err := open(t, c).Put(t.Context(), "key", strings.NewReader("content"),
			storage.PutOptions{RetainUntil: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		c.Transport = changedAnswer{c.Transport, is("head"), func(r *http.Response) {
			r.Header.Del("X-Amz-Object-Lock-Mode")
			r.Header.Del("X-Amz-Object-Lock-Retain-Until-Date")
		}}
		err = open(t, c).Delete(t.Context(), "key", storage.DeleteOptions{Version: obj.Version})
		wantError(t, name, err, storage.ErrLocked)
	}
}

func TestDeleteOfHeld(t *testing.T) {
	server := objectstores.Minio(t)
	c := config(t, server, server.Bucket(t, objectstores.Locks))
	b := open(t, c)
	put(t, b, "key", content(1, 10))
	_, err := server.Client(t).PutObjectLegalHold(t.Context(), &sdk.PutObjectLegalHoldInput{
		Bucket: &c.Bucket, Key: aws.String("key"), LegalHold: &types.ObjectLockLegalHold{Status: types.ObjectLockLegalHoldStatusOn},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, "Delete", b.Delete(t.Context(), "key", storage.DeleteOptions{}), storage.ErrLocked)
	wantContent(t, b, "key", content(1, 10))
}

// TestLockNeedsTheBucket checks that Put neither stores an object that cannot be locked nor reads its source.
func TestLockNeedsTheBucket(t *testing.T) {
	for name, server := range both(t) {
		for _, options := range [][]objectstores.BucketOption{{}, {objectstores.Versioned}} {
			b := open(t, config(t, server, server.Bucket(t, options...)))
			src := &atByte{r: strings.NewReader("content"), hook: func() { t.Errorf("%s: the source was read", name) }}
			_, err := b.Put(t.Context(), "key", src, storage.PutOptions{RetainUntil: time.Now().Add(time.Hour)})
			wantError(t, name, err, storage.ErrUnsupported)
			wantCure(t, name, err, "Object Lock")
			wantNothing(t, b, "key")
		}
	}
}

// TestBeforeVersions checks that objects from before the bucket had versions can be read, and that their Version never
// means a later object of the same name.
func TestBeforeVersions(t *testing.T) {
	server := objectstores.Minio(t)
	c := config(t, server, server.Bucket(t))
	b := open(t, c)
	old := put(t, b, "key", content(1, 10))
	stated, err := b.Stat(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	_, err = server.Client(t).PutBucketVersioning(t.Context(), &sdk.PutBucketVersioningInput{
		Bucket:                  &c.Bucket,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond)
	put(t, b, "key", content(2, 20))
	_, _, err = b.Open(t.Context(), "key", storage.OpenOptions{Version: old.Version})
	wantError(t, "Open of the newest with another's ETag", err, storage.ErrNotExist)
	err = b.Delete(t.Context(), "key", storage.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantPast(t, b, stated.ModTime, map[string][]byte{"key": content(1, 10)})
}

// TestVersionsOfOthers checks that a Version which this store cannot have issued is missing.
func TestVersionsOfOthers(t *testing.T) {
	server := objectstores.S3(t)
	b := open(t, config(t, server, server.Bucket(t)))
	put(t, b, "key", content(1, 10))
	for _, version := range []string{"1", "v:", "e:", "x:1", `e:"0123"`} {
		_, _, err := b.Open(t.Context(), "key", storage.OpenOptions{Version: version})
		wantError(t, "Open of "+version, err, storage.ErrNotExist)
		err = b.Delete(t.Context(), "key", storage.DeleteOptions{Version: version})
		if err != nil {
			t.Errorf("Delete of %s: %v", version, err)
		}
	}
	wantContent(t, b, "key", content(1, 10))
}

// TestManyLeftovers checks that the uploads of several pages, including several of one key, are all found and swept in
// the end. versitygw does not accept its own markers on the second page.
func TestManyLeftovers(t *testing.T) {
	for name, server := range both(t) {
		t.Run(name, func(t *testing.T) {
			c := config(t, server, server.Bucket(t))
			c.PageSize = 2
			b := open(t, c)
			keys := []string{"a", "b b", "b%", "cluster1/x", "cluster1/x", "cluster1/x", "cluster1/ü", "cluster10/x"}
			for _, key := range keys {
				in := &sdk.CreateMultipartUploadInput{Bucket: &c.Bucket, Key: &key}
				_, err := server.Client(t).CreateMultipartUpload(t.Context(), in)
				if err != nil {
					t.Fatal(err)
				}
			}
			var swept []string
			for range keys { // a page may list only some uploads of one key
				for piece, err := range b.Leftovers(t.Context(), "cluster1/") {
					if err != nil {
						t.Fatal(err)
					}
					swept = append(swept, piece.Key)
					err := b.Sweep(t.Context(), piece)
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			slices.Sort(swept)
			want := keys[3:7]
			if !slices.Equal(swept, want) {
				t.Errorf("swept %q, want %q", swept, want)
			}
		})
	}
}

// TestLongUploadIsNotDead checks that a piece is as old as its newest part.
func TestLongUploadIsNotDead(t *testing.T) {
	server := objectstores.Minio(t)
	c := config(t, server, server.Bucket(t))
	client := server.Client(t)
	in := &sdk.CreateMultipartUploadInput{Bucket: &c.Bucket, Key: aws.String("key")}
	created, err := client.CreateMultipartUpload(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond)
	after := time.Now()
	_, err = client.UploadPart(t.Context(), &sdk.UploadPartInput{
		Bucket: &c.Bucket, Key: aws.String("key"), UploadId: created.UploadId, PartNumber: aws.Int32(1),
		Body: bytes.NewReader(content(1, 100)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for piece, err := range open(t, c).Leftovers(t.Context(), "") {
		if err != nil || piece.ModTime.Before(after.Truncate(time.Second)) || piece.Size != 100 {
			t.Errorf("%+v, %v, want one of 100 bytes after %v", piece, err, after)
		}
	}
}

// TestLongNames uses servers that keep objects as files, whose names have a limited length.
func TestLongNames(t *testing.T) {
	for name, server := range both(t) {
		b := open(t, config(t, server, server.Bucket(t)))
		for _, n := range []int{10, part + 1} {
			_, err := b.Put(t.Context(), strings.Repeat("x", 256), bytes.NewReader(content(1, n)), storage.PutOptions{})
			if name == "minio" {
				wantError(t, name, err, storage.ErrUnsupported)
			}
			if err == nil {
				t.Errorf("%s: %d bytes are stored", name, n)
			}
			wantNoParts(t, b)
		}
	}
}
