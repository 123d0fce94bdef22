package s3

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcd-dr/etcd-dr/storage"
)

// List implements storage.Bucket. Keys that storage.ValidKey refuses, such as the "folder/" that consoles make, are left
// out: nobody could open them.
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

// listPage returns the keys behind after. Each page is asked for by the last key of the one before rather than by the
// store's token, so that a store which does not go on in order is found out, and not listed for ever.
func (b *Bucket) listPage(
	ctx context.Context, prefix, after string,
) (page []storage.Object, last string, more bool, err error) {
	out, err := b.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket: &b.name, Prefix: optional(prefix), StartAfter: optional(after), MaxKeys: &b.page,
		EncodingType: types.EncodingTypeUrl, // XML cannot hold every key
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
			return nil, "", false, fmt.Errorf("the store lists %q behind %q: it does not list in order", key, last)
		}
		last = key
		page = append(page, storage.Object{Key: key, Size: aws.ToInt64(c.Size), ModTime: aws.ToTime(c.LastModified)})
	}
	more = aws.ToBool(out.IsTruncated)
	if more && last == after {
		return nil, "", false, fmt.Errorf("the store says that there is more behind %q, and does not show it", after)
	}
	return page, last, more, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// decoded undoes the encoding of a key in a listing, which a store may have left out.
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
