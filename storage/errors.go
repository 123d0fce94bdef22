package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Errors of a Bucket, to be matched with errors.Is. ErrNotExist and ErrExist also match their namesakes in io/fs.
var (
	ErrNotExist    = fmt.Errorf("object %w", fs.ErrNotExist)
	ErrExist       = fmt.Errorf("object %w", fs.ErrExist)
	ErrLocked      = errors.New("object is locked")
	ErrDenied      = fmt.Errorf("store: %w", fs.ErrPermission)
	ErrRange       = errors.New("range is outside the object")
	ErrUnsupported = errors.New("store does not support this")
	ErrKey         = errors.New("malformed key")
	// ErrNoBucket: there is nothing to store in. It is never taken for an absent object or an empty listing.
	ErrNoBucket = errors.New("bucket does not exist")
	// ErrCredentials: the store does not accept the caller, whatever the caller asks for. It matches ErrDenied.
	ErrCredentials = fmt.Errorf("%w", ErrDenied)
	// ErrUnreadable: the store has the object and does not return it, however often it is asked: it is archived, encrypted
	// with a key that the store was not given, or on a bad sector.
	ErrUnreadable = errors.New("object cannot be read")
)

// Unreadable reports whether err, of reading one object, is about that object alone and would come again. What a repetition
// may cure is not, and neither is an error that the next object would meet too.
func Unreadable(err error) bool {
	if errors.Is(err, ErrCredentials) {
		return false
	}
	return errors.Is(err, ErrUnreadable) || errors.Is(err, ErrDenied) || errors.Is(err, ErrUnsupported)
}

// UnlistedError is the one error of List that does not end the listing: the keys below Prefix, which ends in "/", are not
// listed, and all others are.
type UnlistedError struct {
	Prefix string
	Err    error
}

func (e *UnlistedError) Error() string { return e.Err.Error() }

// Unwrap returns the store's own error.
func (e *UnlistedError) Unwrap() error { return e.Err }

// ErrDamaged: what was read is not what was stored. A Bucket never says so of itself: it stores bytes, and who knows
// what they mean finds out.
var ErrDamaged = errors.New("damaged")

// ValidKey returns an error that wraps ErrKey unless key is a slash-separated path of at most 1,024 bytes (the limit of
// S3 and GCS) without empty, "." or ".." elements, NUL bytes or control characters.
func ValidKey(key string) error {
	if key == "" || len(key) > 1024 {
		return fmt.Errorf("%w: %q has %d bytes, allowed are 1 to 1024", ErrKey, key, len(key))
	}
	for _, r := range key {
		if r < 0x20 || r == 0x7f || r == 0xfffd {
			return fmt.Errorf("%w: %q holds a control character or is not UTF-8", ErrKey, key)
		}
	}
	for element := range strings.SplitSeq(key, "/") {
		if element == "" || element == "." || element == ".." {
			return fmt.Errorf("%w: %q has an empty, \".\" or \"..\" element", ErrKey, key)
		}
	}
	return nil
}
