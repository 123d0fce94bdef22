package s3

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Leftovers implements storage.Sweeper: the multipart uploads that have not ended. A piece's Key is the object's, its
// Version the upload's id.
//
// All uploads of the bucket are listed, and not those with prefix alone: MinIO takes a prefix for a key and would show
// none. After a restart it shows none at all; it removes old ones by itself.
func (b *Bucket) Leftovers(ctx context.Context, prefix string) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		in := &s3.ListMultipartUploadsInput{Bucket: &b.name, MaxUploads: &b.page, EncodingType: types.EncodingTypeUrl}
		for more := true; more; {
			page, err := b.uploadPage(ctx, in)
			if err != nil {
				yield(storage.Object{}, fmt.Errorf("list uploads for %q: %w", prefix, err))
				return
			}
			more = in.KeyMarker != nil
			for _, piece := range page {
				if !strings.HasPrefix(piece.Key, prefix) {
					continue
				}
				err := b.measure(ctx, &piece)
				if errors.Is(err, storage.ErrNotExist) { // ended since
					continue
				}
				if err != nil {
					err = fmt.Errorf("list the parts of %q: %w", piece.Key, err)
				}
				if !yield(piece, err) || err != nil {
					return
				}
			}
		}
	}
}

// uploadPage lists a page and moves in on to the next one; behind the last one it has no KeyMarker.
func (b *Bucket) uploadPage(ctx context.Context, in *s3.ListMultipartUploadsInput) ([]storage.Object, error) {
	out, err := b.client.ListMultipartUploads(ctx, in)
	if in.UploadIdMarker != nil && status(err) == http.StatusBadRequest {
		// versitygw does not find the marker that it has given. Behind the key alone only other uploads of the same key
		// are missed, until this one is swept.
		in.UploadIdMarker = nil
		out, err = b.client.ListMultipartUploads(ctx, in)
	}
	if err != nil {
		return nil, b.failure(err, rightUploads)
	}
	before := aws.ToString(in.KeyMarker) + "\x00" + aws.ToString(in.UploadIdMarker)
	in.KeyMarker, in.UploadIdMarker = nil, nil
	var page []storage.Object
	for _, u := range out.Uploads {
		key, err := decoded(u.Key, out.EncodingType)
		if err != nil {
			return nil, err
		}
		page = append(page, storage.Object{Key: key, Version: aws.ToString(u.UploadId), ModTime: aws.ToTime(u.Initiated)})
	}
	if !aws.ToBool(out.IsTruncated) {
		return page, nil
	}
	next, err := decoded(out.NextKeyMarker, out.EncodingType)
	if err != nil {
		return nil, err
	}
	if before == next+"\x00"+aws.ToString(out.NextUploadIdMarker) {
		return nil, fmt.Errorf("the store says that there are more uploads behind %q, and does not show them", next)
	}
	in.KeyMarker, in.UploadIdMarker = &next, out.NextUploadIdMarker
	return page, nil
}

// measure adds up the parts of an upload. It is as old as the last of them: a long one must not be taken for a dead one.
func (b *Bucket) measure(ctx context.Context, piece *storage.Object) error {
	pages := s3.NewListPartsPaginator(b.client, &s3.ListPartsInput{
		Bucket: &b.name, Key: &piece.Key, UploadId: &piece.Version,
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if hasCode(err, noSuchUpload) {
			return storage.ErrNotExist
		}
		if err != nil {
			return b.failure(err, rightUploads)
		}
		for _, part := range page.Parts {
			piece.Size += aws.ToInt64(part.Size)
			piece.ModTime = latest(piece.ModTime, aws.ToTime(part.LastModified))
		}
	}
	return nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Sweep implements storage.Sweeper.
func (b *Bucket) Sweep(ctx context.Context, piece storage.Object) error {
	if err := b.abort(ctx, piece.Key, piece.Version); err != nil {
		return fmt.Errorf("remove the upload of %q: %w", piece.Key, err)
	}
	return nil
}
