package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Delete implements storage.Bucket. It checks for a lock first: in a versioned bucket, deleting a locked object only
// adds a delete marker, which hides the object.
func (b *Bucket) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	err := b.delete(ctx, key, o)
	if err != nil {
		return fmt.Errorf("delete %q: %w", key, err)
	}
	return nil
}

func (b *Bucket) delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	found, err := b.find(ctx, key, o.Version)
	switch {
	case errors.Is(err, storage.ErrNotExist):
		return nil
	case err != nil:
		return err
	case o.SkipLockCheck:
	case found.held:
		return fmt.Errorf("%w by a legal hold, which has no end", storage.ErrLocked)
	case found.now.Before(found.RetainUntil):
		return fmt.Errorf("%w until %s", storage.ErrLocked, found.RetainUntil.Format(time.RFC3339))
	}
	pin, _ := parseVersion(o.Version)
	_, err = b.client.DeleteObject(ctx, &s3.DeleteObjectInput{
		Bucket: &b.name, Key: &key, VersionId: pin.id, IfMatch: pin.etag,
	})
	switch {
	case err == nil:
		return nil
	case isLockAnswer(err):
		return fmt.Errorf("%w: %w", storage.ErrLocked, b.failure(err, rightDelete))
	case isGone(err) && status(err) != http.StatusMethodNotAllowed:
		return nil
	}
	return b.failure(err, rightDelete)
}

// isLockAnswer reports whether the store refused a deletion because of a lock that the caller could not see. Amazon and
// versitygw answer 403, as they do when a right is missing, and MinIO answers 400; only the message identifies the
// lock.
func isLockAnswer(err error) bool {
	s := status(err)
	if s != http.StatusForbidden && s != http.StatusBadRequest {
		return false
	}
	words := strings.ToLower(err.Error())
	return slices.ContainsFunc([]string{"object lock", "worm", "retention"}, func(word string) bool {
		return strings.Contains(words, word)
	})
}
