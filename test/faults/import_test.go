package faults

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/database"
)

var importStages = []stage{{"fetch", 2, 100}, {"prove", 1, 30}, {"stream", 2, 100}, {"commit", 1, 0}}

// snapshotFile returns a file as etcdctl snapshot save writes it, of that many bytes.
func snapshotFile(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	err := database.Generate(path, size)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	err = os.WriteFile(path, append(data, sum[:]...), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKilledImports kills imports at every stage: only whole backups are listed, and neither the repository nor the scratch directory
// keeps anything of the killed ones.
func TestKilledImports(t *testing.T) {
	if testing.Short() {
		return
	}
	r, scratch := repo(filepath.Join(t.TempDir(), "repo")), t.TempDir()
	key := newKey(t, filepath.Join(t.TempDir(), "key.txt"))
	args := r.flags("import", snapshotFile(t, largeSize), "--recipient", key.recipient, "--scratch-dir", scratch)
	verified := map[catalog.ID]bool{}
	for k := newKills(t, importStages, 8); k.more(t); {
		k.killOnce(t, dr, args...)
		noProcess(t)
		verifyNew(t, r, key, verified)
	}
	waitPastLeftovers(t, r)
	run(t, append(args, "--grace", "1ms")...).Succeeded(t, nil)
	nothingIn(t, scratch)
	left := r.leftovers(t)
	if len(left) > 0 {
		t.Errorf("a short grace has left %q", left)
	}
	verifyNew(t, r, key, verified)
	onlyBackups(t, r)
}

// TestFullDiskUnderAnImport imports a directory with a snapshot that does not fit into the scratch directory: the others are stored.
func TestFullDiskUnderAnImport(t *testing.T) {
	if testing.Short() || !inOwnMounts(t) {
		return
	}
	r, scratch, dir := repo(filepath.Join(t.TempDir(), "repo")), newDisk(t, "32m"), t.TempDir()
	key := newKey(t, filepath.Join(t.TempDir(), "key.txt"))
	for name, size := range map[string]int64{"1.db": 48 << 20, "2.db": 1 << 20} {
		err := os.Rename(snapshotFile(t, size), filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
	}
	o := run(t, r.flags("import", dir, "--recipient", key.recipient, "--scratch-dir", string(scratch))...)
	o.Failed(t, 3, "--scratch-dir", noSpace)
	var d document.Import
	o.Decode(t, &d)
	if len(d.Sources) != 2 || d.Sources[0].State != document.ImportFailed || d.Sources[1].State != document.ImportStored {
		t.Errorf("%+v", d.Sources)
	}
	nothingIn(t, string(scratch))
}
