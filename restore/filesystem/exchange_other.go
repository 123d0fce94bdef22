//go:build !linux

package filesystem

import "errors"

// Exchange returns errors.ErrUnsupported: it is implemented only on Linux.
func Exchange(string, string) error { return errors.ErrUnsupported }
