package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Errors of a Bucket, to be matched with errors.Is. ErrNotExist and ErrExist also match their namesakes in
// io/fs, and ErrDenied matches fs.ErrPermission.
var (
	ErrNotExist    = fault.Mark(fault.NotFound, fmt.Errorf("object %w", fs.ErrNotExist))
	ErrExist       = fmt.Errorf("object %w", fs.ErrExist)
	ErrChanged     = fault.New(fault.Busy, "object is not the version to replace: another writer has changed it")
	ErrLocked      = fault.New(fault.Busy, "object is locked")
	ErrDenied      = fault.New(fault.Denied, "store: "+fs.ErrPermission.Error())
	ErrRange       = errors.New("range is outside the object")
	ErrUnsupported = fault.New(fault.Internal, "store does not support this")
	ErrKey         = errors.New("malformed key")
	// ErrNoBucket means that the bucket itself is missing. It never looks like a missing object or an empty listing.
	ErrNoBucket = fault.New(fault.Unreachable, "bucket does not exist")
	// ErrCredentials means that the store rejects the caller for every request. It matches ErrDenied.
	ErrCredentials = fmt.Errorf("%w", ErrDenied)
	// ErrUnreadable means that the store has the object but cannot return it in any try: it is archived, encrypted with
	// a key that the store was not given, or on a bad sector. Unreadable matches it. Its kind is not Damaged, because its
	// bytes were never seen.
	ErrUnreadable = fault.New(fault.Unreachable, "object cannot be read")
)

// Unreadable reports whether err, from reading one object, is permanent and concerns that object alone. It returns
// false for errors that another try may avoid or that the next object would meet too.
func Unreadable(err error) bool {
	if errors.Is(err, ErrCredentials) {
		return false
	}
	return errors.Is(err, ErrUnreadable) || errors.Is(err, ErrDenied) || errors.Is(err, ErrUnsupported)
}

// UnlistedError is the only error of List that does not end the listing. The listing omits the keys below Prefix, which
// ends in "/", and contains all others.
type UnlistedError struct {
	Prefix string
	Err    error
}

func (e *UnlistedError) Error() string { return e.Err.Error() }

// Unwrap returns the store's own error.
func (e *UnlistedError) Unwrap() error { return e.Err }

// ErrDamaged means that the bytes read differ from the bytes stored. A Bucket never returns it: it does not know the
// content, and its callers check that.
var ErrDamaged = fault.New(fault.Damaged, "damaged")

// ValidKey returns an error that wraps ErrKey unless key is a slash-separated path of at most 1,024 bytes (the limit of
// S3 and GCS) without empty, "." or ".." elements, NUL bytes or control characters.
func ValidKey(key string) error {
	if key == "" || len(key) > 1024 {
		return fmt.Errorf("%w: %q has %d bytes; 1 to 1024 are allowed", ErrKey, key, len(key))
	}
	for _, r := range key {
		if r < 0x20 || r == 0x7f || r == 0xfffd {
			return fmt.Errorf("%w: %q has a control character or is not UTF-8", ErrKey, key)
		}
	}
	for element := range strings.SplitSeq(key, "/") {
		if element == "" || element == "." || element == ".." {
			return fmt.Errorf("%w: %q has an empty, \".\" or \"..\" element", ErrKey, key)
		}
	}
	return nil
}
