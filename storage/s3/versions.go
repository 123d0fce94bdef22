package s3

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Versions implements storage.Versioned. S3 reports times in seconds, so an object that was replaced in the second in
// which it was stored appears in no past state. versitygw reports a replaced version with the time of its replacement,
// so a past state may lack objects that existed.
func (b *Bucket) Versions(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.ObjectVersion, error] {
	return func(yield func(storage.ObjectVersion, error) bool) {
		in := &s3.ListObjectVersionsInput{
			Bucket: &b.name, Prefix: optional(o.Prefix), KeyMarker: optional(o.After), MaxKeys: &b.page,
			EncodingType: types.EncodingTypeUrl,
		}
		var events []event // of keys that may continue on the next page
		for more := true; more; {
			page, err := b.versionPage(ctx, in)
			if err != nil {
				yield(storage.ObjectVersion{}, fmt.Errorf("list versions of %q: %w", o.Prefix, err))
				return
			}
			more = in.KeyMarker != nil
			var ready []event
			ready, events = complete(append(events, page...), more)
			for _, kept := range history(ready) {
				if kept.Key > o.After && strings.HasPrefix(kept.Key, o.Prefix) && !yield(kept, nil) {
					return
				}
			}
		}
	}
}

// event is a version or a deletion.
type event struct {
	kept    storage.ObjectVersion
	deleted bool
	latest  bool
}

// versionPage returns one page and advances in to the next one. After the last page in.KeyMarker is nil.
func (b *Bucket) versionPage(ctx context.Context, in *s3.ListObjectVersionsInput) ([]event, error) {
	out, err := b.client.ListObjectVersions(ctx, in)
	if err != nil {
		return nil, b.failure(err, rightVersions)
	}
	var events []event
	for _, v := range out.Versions {
		key, err := decoded(v.Key, out.EncodingType)
		if err != nil {
			return nil, err
		}
		obj := storage.Object{Key: key, Size: aws.ToInt64(v.Size), ModTime: aws.ToTime(v.LastModified)}
		obj.Version = versionName(v.VersionId, v.ETag)
		if aws.ToString(v.VersionId) == nullID && !aws.ToBool(v.IsLatest) {
			obj.Version = byNull + aws.ToString(v.ETag)
		}
		events = append(events, event{kept: storage.ObjectVersion{Object: obj}, latest: aws.ToBool(v.IsLatest)})
	}
	for _, d := range out.DeleteMarkers {
		key, err := decoded(d.Key, out.EncodingType)
		if err != nil {
			return nil, err
		}
		obj := storage.Object{Key: key, ModTime: aws.ToTime(d.LastModified)}
		events = append(events, event{kept: storage.ObjectVersion{Object: obj}, deleted: true, latest: aws.ToBool(d.IsLatest)})
	}
	return events, b.nextVersions(in, out)
}

func (b *Bucket) nextVersions(in *s3.ListObjectVersionsInput, out *s3.ListObjectVersionsOutput) error {
	before, beforeVersion := in.KeyMarker, in.VersionIdMarker
	in.KeyMarker, in.VersionIdMarker = nil, nil
	if !aws.ToBool(out.IsTruncated) {
		return nil
	}
	next, err := decoded(out.NextKeyMarker, out.EncodingType)
	if err != nil {
		return err
	}
	in.KeyMarker, in.VersionIdMarker = &next, out.NextVersionIdMarker
	if next == aws.ToString(before) && aws.ToString(in.VersionIdMarker) == aws.ToString(beforeVersion) {
		return fmt.Errorf("the store announces more versions after %q but lists none", next)
	}
	return nil
}

// complete splits events into those of keys that are listed completely and those of the last key, which may continue on
// the next page.
func complete(events []event, more bool) (ready, rest []event) {
	slices.SortStableFunc(events, func(a, b event) int { return strings.Compare(a.kept.Key, b.kept.Key) })
	if !more || len(events) == 0 {
		return events, nil
	}
	last := events[len(events)-1].kept.Key
	i := slices.IndexFunc(events, func(e event) bool { return e.kept.Key == last })
	return events[:i:i], slices.Clone(events[i:])
}

// history returns the versions, each with the time at which the next version or deletion of its key replaced it. events
// are sorted by key, and within a key newest first, as S3 lists them.
func history(events []event) []storage.ObjectVersion {
	var all []storage.ObjectVersion
	for len(events) > 0 {
		n := 1
		for n < len(events) && events[n].kept.Key == events[0].kept.Key {
			n++
		}
		all = append(all, historyOfKey(events[:n])...)
		events = events[n:]
	}
	return all
}

func historyOfKey(events []event) []storage.ObjectVersion {
	slices.SortStableFunc(events, newestFirst)
	var all []storage.ObjectVersion
	var until time.Time
	for i, e := range events {
		if i > 0 && !e.deleted && e.kept.Version == events[i-1].kept.Version {
			continue // versitygw begins a page with the last version of the previous page
		}
		// MinIO's listing reports milliseconds, its Stat only seconds. A caller must see the same time in both.
		e.kept.ModTime = e.kept.ModTime.Truncate(time.Second)
		e.kept.Until = until
		until = e.kept.ModTime
		if !e.deleted {
			all = append(all, e.kept)
		}
	}
	return all
}

// newestFirst sorts a deletion before a version of the same second, as the newer of the two: the deletion needs an
// object to delete.
func newestFirst(a, b event) int {
	switch {
	case a.latest != b.latest:
		return cmp.Compare(boolRank(b.latest), boolRank(a.latest))
	case !a.kept.ModTime.Equal(b.kept.ModTime):
		return b.kept.ModTime.Compare(a.kept.ModTime)
	}
	return cmp.Compare(boolRank(b.deleted), boolRank(a.deleted))
}

func boolRank(is bool) int {
	if is {
		return 1
	}
	return 0
}
