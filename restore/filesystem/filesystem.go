// Package filesystem has the operations on directories that package os lacks.
package filesystem

import (
	"fmt"
	"os"
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
