// Package filesystem has the operations on directories that package os lacks.
package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Space is the space of a file system, in bytes.
type Space struct {
	Free  int64 // that a user without privileges may still write
	Total int64
}

// Sync makes the file or the directory at path durable.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	err = f.Sync()
	if err != nil {
		return fmt.Errorf("make %s durable: %w", path, err)
	}
	return nil
}

// WriteFile replaces the file at path. After a kill the file has its old or its new content, never a part. Two writers at once are not
// supported.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	part := path + ".part"
	err := os.Remove(part)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = os.WriteFile(part, content, mode)
	if err != nil {
		return err
	}
	err = Sync(part)
	if err != nil {
		return err
	}
	err = os.Rename(part, path)
	if err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}
