package salvage_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// TestPipesAreDamage checks that a pipe in the place of a database or of a log is damage. Opening one would hang for ever.
func TestPipesAreDamage(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"snap/db", "wal/0000000000000000-0000000000000000.wal"} {
		path := filepath.Join(dir, "member", file)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err != nil {
			t.Fatal(err)
		}
		err = syscall.Mkfifo(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	disks, err := salvage.Survey(context.Background(), catalog.Catalog{}, []string{dir}, nil)
	text := ""
	switch {
	case err != nil:
		text = err.Error()
	case len(disks) == 1 && len(disks[0].Databases) == 1:
		text = disks[0].Databases[0].Damage
	}
	if !strings.Contains(text, "is not a regular file") {
		t.Errorf("%+v, %v", disks, err)
	}
}
