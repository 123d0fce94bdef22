package s3

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcd-dr/etcd-dr/storage"
)

// upload is one multipart upload.
type upload struct {
	*putting
	uploadID *string

	mu     sync.Mutex
	sent   map[int]types.CompletedPart
	size   int64
	broken bool // a part was interrupted and the store may still be receiving it
}

// Part implements storage.Upload.
func (u *upload) Part(ctx context.Context, n int, content []byte) error {
	body := storage.Lend(content)
	defer body.End()
	number := int32(n)
	out, err := u.b.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &u.b.name, Key: &u.key, UploadId: u.uploadID, PartNumber: &number, Body: body,
		ChecksumAlgorithm: u.algorithm(), ChecksumCRC32C: u.checksum(content),
	})
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		u.broken = true
		return u.failure(err)
	}
	u.sent[n] = types.CompletedPart{PartNumber: &number, ETag: out.ETag, ChecksumCRC32C: out.ChecksumCRC32C}
	u.size += int64(len(content))
	return nil
}

// Commit implements storage.Upload.
func (u *upload) Commit(ctx context.Context, n int) (storage.Object, error) {
	in := &s3.CompleteMultipartUploadInput{
		Bucket: &u.b.name, Key: &u.key, UploadId: u.uploadID, IfNoneMatch: u.condition(), MpuObjectSize: &u.size,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: u.inOrder()},
	}
	if u.algorithm() != "" {
		in.ChecksumType = types.ChecksumTypeFullObject
	}
	out, err := u.b.client.CompleteMultipartUpload(ctx, in)
	if err != nil && isAmbiguous(err) {
		return u.resolveLostCommit(ctx, err)
	}
	if err != nil {
		return storage.Object{}, u.failure(err)
	}
	return u.object(u.size, versionName(out.VersionId, out.ETag), serverTime(out.ResultMetadata)), nil
}

// inOrder returns the parts by their numbers. The caller has sent all of them, so that no lock is needed.
func (u *upload) inOrder() []types.CompletedPart {
	parts := make([]types.CompletedPart, 0, len(u.sent))
	for _, n := range slices.Sorted(maps.Keys(u.sent)) {
		parts = append(parts, u.sent[n])
	}
	return parts
}

// resolveLostCommit aborts the upload and then checks for the object. The abort has no effect if the upload has become an
// object; otherwise the object cannot appear any more.
func (u *upload) resolveLostCommit(ctx context.Context, cause error) (storage.Object, error) {
	aborting, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveTime)
	defer cancel()
	// Commit's caller aborts again and reports that error.
	_ = u.Abort(aborting)
	return u.putting.resolveLostPut(ctx, cause, u.size)
}

// abortPauses are the pauses before Abort checks again for an aborted upload.
var abortPauses = []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond}

// Abort implements storage.Upload. A part that the store is still receiving may survive together with its upload, so S3
// asks callers to repeat the abort until no parts are left.
func (u *upload) Abort(ctx context.Context) error {
	err := u.b.abort(ctx, u.key, aws.ToString(u.uploadID))
	if !u.broken {
		return err
	}
	for _, pause := range abortPauses {
		ended := storage.Sleep(ctx, pause)
		if ended != nil {
			return errors.Join(err, ended)
		}
		if err != nil || u.uploadExists(ctx) {
			err = u.b.abort(ctx, u.key, aws.ToString(u.uploadID))
		}
	}
	return err
}

func (u *upload) uploadExists(ctx context.Context) bool {
	_, err := u.b.client.ListParts(ctx, &s3.ListPartsInput{
		Bucket: &u.b.name, Key: &u.key, UploadId: u.uploadID, MaxParts: aws.Int32(1),
	})
	return err == nil
}

// abort removes an upload and its parts. A missing upload is no error.
func (b *Bucket) abort(ctx context.Context, key, uploadID string) error {
	_, err := b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: &b.name, Key: &key, UploadId: &uploadID,
	})
	if err != nil && !hasCode(err, noSuchUpload) {
		return b.failure(err, rightAbort)
	}
	return nil
}
