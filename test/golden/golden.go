// Package golden compares output with files that are kept with the tests. The flag -update rewrites them.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Want fails the test unless the file at path contains got. It returns the file's content.
func Want(tb testing.TB, path string, got []byte) []byte {
	tb.Helper()
	want := Read(tb, path, got)
	diff := cmp.Diff(string(want), string(got))
	if diff != "" {
		tb.Errorf("%s (-want +got): if programs and repositories that exist may differ, rewrite it with -update:\n%s", path, diff)
	}
	return want
}

// Read returns the content of the file at path, which contains now after an update. It does not compare.
func Read(tb testing.TB, path string, now []byte) []byte {
	tb.Helper()
	if *update {
		write(tb, path, now)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return content
}

func write(tb testing.TB, path string, content []byte) {
	tb.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err != nil {
		tb.Fatal(err)
	}
	err = os.WriteFile(path, content, 0o644)
	if err != nil {
		tb.Fatal(err)
	}
}
