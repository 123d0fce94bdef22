package wal_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// logFiles are the paths of a log's files, in order.
func logFiles(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	ok(t, err)
	slices.Sort(names)
	return names
}

func logBytes(t *testing.T, dir string) []byte {
	t.Helper()
	var all []byte
	for _, name := range logFiles(t, dir) {
		data, err := os.ReadFile(name)
		ok(t, err)
		all = append(all, data...)
	}
	return all
}
