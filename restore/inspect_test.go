package restore_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Inspect returns the same figures as etcdutl, for a file from etcdctl and for a copy of a member's database.
func TestInspect(t *testing.T) {
	data := plainDatabase(t).snapshot()
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		err := os.WriteFile(path, content, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	saved := write("saved.db", data)
	want, err := snapshot.NewV3(zap.NewNop()).Status(saved)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		file   string
		digest bool
	}{"saved": {saved, true}, "copied": {write("db", data[:len(data)-32]), false}} {
		got, err := restore.Inspect(t.Context(), test.file, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		same := got.Hash == fmt.Sprintf("%08x", want.Hash) && got.Revision == want.Revision && got.Keys == want.TotalKey &&
			got.Size == want.TotalSize && got.Version == want.Version
		if !same || got.Digest != test.digest {
			t.Errorf("%s: %+v, etcdutl reports %+v", name, got, want)
		}
	}
	cut, flipped := data[:len(data)/2], append([]byte{}, data...)
	flipped[len(flipped)/2] ^= 1
	for name, file := range map[string]string{
		"cut off": write("cut.db", cut), "flipped": write("flipped.db", flipped), "garbage": write("garbage", make([]byte, 5000)),
	} {
		_, err := restore.Inspect(t.Context(), file, nil)
		if !errors.Is(err, catalog.ErrDamaged) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	_, err = restore.Inspect(t.Context(), filepath.Join(dir, "none"), nil)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	_, err = restore.Inspect(t.Context(), dir, nil)
	if !errors.Is(err, plan.ErrLayout) {
		t.Errorf("a directory: %v", err)
	}
}
