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
	broken bool // a part was broken off, and the store may still be at it
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
		return u.settle(ctx, err)
	}
	if err != nil {
		return storage.Object{}, u.failure(err)
	}
	return u.object(u.size, versionName(out.VersionId, out.ETag), serverTime(out.ResultMetadata)), nil
}

// inOrder returns the parts by their numbers. All have been sent: nobody writes to them any more.
func (u *upload) inOrder() []types.CompletedPart {
	parts := make([]types.CompletedPart, 0, len(u.sent))
	for _, n := range slices.Sorted(maps.Keys(u.sent)) {
		parts = append(parts, u.sent[n])
	}
	return parts
}

// settle first ends the upload, if it has not ended as an object: only then nothing can appear after it was looked for.
func (u *upload) settle(ctx context.Context, cause error) (storage.Object, error) {
	aborting, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	// What fails here is tried again, and told, by whoever called Commit.
	_ = u.Abort(aborting)
	return u.putting.settle(ctx, cause, u.size)
}

// afterwards are the pauses before an upload that was aborted is looked for again.
var afterwards = []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond}

// Abort implements storage.Upload. A part that was still being taken in may survive, with its upload: S3 wants the abort to
// be repeated until nothing is left.
func (u *upload) Abort(ctx context.Context) error {
	err := u.b.abort(ctx, u.key, aws.ToString(u.uploadID))
	if !u.broken {
		return err
	}
	for _, pause := range afterwards {
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pause):
		}
		if err != nil || u.isThere(ctx) {
			err = u.b.abort(ctx, u.key, aws.ToString(u.uploadID))
		}
	}
	return err
}

func (u *upload) isThere(ctx context.Context) bool {
	_, err := u.b.client.ListParts(ctx, &s3.ListPartsInput{
		Bucket: &u.b.name, Key: &u.key, UploadId: u.uploadID, MaxParts: aws.Int32(1),
	})
	return err == nil
}

// abort removes an upload and its parts; one that is gone is no error.
func (b *Bucket) abort(ctx context.Context, key, uploadID string) error {
	_, err := b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: &b.name, Key: &key, UploadId: &uploadID,
	})
	if err != nil && !hasCode(err, noSuchUpload) {
		return b.failure(err, rightAbort)
	}
	return nil
}
