package s3

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Leftovers implements storage.Sweeper. It yields the unfinished multipart uploads. A piece's Key is the object's key
// and its Version is the upload's id.
//
// Leftovers lists all uploads of the bucket and filters them by prefix itself, because MinIO matches a prefix only if
// it is a whole key. After a restart MinIO lists no uploads at all, but it removes old ones by itself.
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
				if errors.Is(err, storage.ErrNotExist) { // the upload ended after it was listed
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

// uploadPage returns one page and advances in to the next one. After the last page in.KeyMarker is nil.
func (b *Bucket) uploadPage(ctx context.Context, in *s3.ListMultipartUploadsInput) ([]storage.Object, error) {
	out, err := b.client.ListMultipartUploads(ctx, in)
	if in.UploadIdMarker != nil && status(err) == http.StatusBadRequest {
		// versitygw does not accept its own marker. Continuing after the key alone skips only other uploads of that
		// key, until this one is swept.
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
		return nil, fmt.Errorf("the store announces more uploads after %q but lists none", next)
	}
	in.KeyMarker, in.UploadIdMarker = &next, out.NextUploadIdMarker
	return page, nil
}

// measure sets the piece's size to the sum of its parts, and its time to that of the newest part: an upload that has
// been running for long must not look abandoned.
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
			piece.ModTime = storage.Later(piece.ModTime, aws.ToTime(part.LastModified))
		}
	}
	return nil
}

// Sweep implements storage.Sweeper.
func (b *Bucket) Sweep(ctx context.Context, piece storage.Object) error {
	err := b.abort(ctx, piece.Key, piece.Version)
	if err != nil {
		return fmt.Errorf("remove the upload of %q: %w", piece.Key, err)
	}
	return nil
}
