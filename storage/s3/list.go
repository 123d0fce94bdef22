package s3

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcd-dr/etcd-dr/storage"
)

// List implements storage.Bucket. It omits keys that storage.ValidKey refuses, such as the "folder/" that consoles
// create, because Open cannot read them.
func (b *Bucket) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		after, more := o.After, true
		for more {
			var page []storage.Object
			var err error
			page, after, more, err = b.listPage(ctx, o.Prefix, after)
			if err != nil {
				yield(storage.Object{}, fmt.Errorf("list %q: %w", o.Prefix, err))
				return
			}
			for _, obj := range page {
				if storage.ValidKey(obj.Key) == nil && !yield(obj, nil) {
					return
				}
			}
		}
	}
}

// listPage returns a page of keys that begins after the key after. It requests each page by the last key of the previous
// page, not by the store's continuation token, so that a store which lists out of order causes an error and not an
// endless listing.
func (b *Bucket) listPage(
	ctx context.Context, prefix, after string,
) (page []storage.Object, last string, more bool, err error) {
	out, err := b.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket: &b.name, Prefix: optional(prefix), StartAfter: optional(after), MaxKeys: &b.page,
		EncodingType: types.EncodingTypeUrl, // XML cannot represent every key
	})
	if err != nil {
		return nil, "", false, b.failure(err, rightList)
	}
	last = after
	for _, c := range out.Contents {
		key, err := decoded(c.Key, out.EncodingType)
		if err != nil {
			return nil, "", false, err
		}
		if key <= last || !strings.HasPrefix(key, prefix) {
			return nil, "", false, fmt.Errorf("the store lists %q after %q: its listing is out of order", key, last)
		}
		last = key
		page = append(page, storage.Object{Key: key, Size: aws.ToInt64(c.Size), ModTime: listedTime(c.LastModified)})
	}
	more = aws.ToBool(out.IsTruncated)
	if more && last == after {
		return nil, "", false, fmt.Errorf("the store announces more keys after %q but lists none", after)
	}
	return page, last, more, nil
}

// listedTime returns the time in a listing as Stat and Open return it: MinIO's listings have milliseconds, its other answers only seconds.
func listedTime(at *time.Time) time.Time { return aws.ToTime(at).Truncate(time.Second) }

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// decoded returns the key of a listing without its URL encoding, if the store has encoded it.
func decoded(key *string, encoding types.EncodingType) (string, error) {
	if encoding != types.EncodingTypeUrl {
		return aws.ToString(key), nil
	}
	plain, err := url.QueryUnescape(aws.ToString(key))
	if err != nil {
		return "", fmt.Errorf("the store lists a key that cannot be decoded: %w", err)
	}
	return plain, nil
}
