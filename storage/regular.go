package storage

import (
	"errors"
	"fmt"
	"os"
)

// ErrNotRegular means that a path leads to a directory, a pipe or a device.
var ErrNotRegular = errors.New("is not a regular file")

// OpenRegular opens a regular file for reading. Any other kind of file is an error that matches ErrNotRegular: opening a pipe would
// wait for its writer.
func OpenRegular(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s %w", path, ErrNotRegular)
	}
	return os.Open(path)
}
