package salvage_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// TestKeyThatIsNoRevision checks that a last key which is no revision is damage: etcd's own function panics at it.
func TestKeyThatIsNoRevision(t *testing.T) {
	revision := []byte("\x00\x00\x00\x00\x00\x00\x00\x07_\x00\x00\x00\x00\x00\x00\x00\x00")
	for name, test := range map[string]struct {
		last    []byte
		damaged bool
	}{
		"a revision":            {revision, false},
		"a deletion":            {append(bytes.Clone(revision), 't'), false},
		"another separator":     {bytes.Replace(revision, []byte("_"), []byte("\x05"), 1), true},
		"a negative revision":   {append([]byte{0xff}, revision[1:]...), true},
		"a key that is cut off": {revision[:16], true},
	} {
		dir := t.TempDir()
		writeDatabase(t, dir, test.last)
		disks, err := salvage.Survey(t.Context(), catalog.Catalog{}, []string{dir}, nil)
		if err != nil || len(disks) != 1 || len(disks[0].Databases) != 1 {
			t.Fatalf("%s: %+v, %v", name, disks, err)
		}
		got := disks[0].Databases[0]
		if test.damaged != strings.Contains(got.Damage, "no revision") || !test.damaged && got.Revision != 7 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// writeDatabase writes a member's database whose last key is last.
func writeDatabase(t *testing.T, dir string, last []byte) {
	t.Helper()
	snap := filepath.Join(dir, "member", "snap")
	err := os.MkdirAll(snap, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(filepath.Join(snap, "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for bucket, pair := range map[string][2][]byte{"meta": {[]byte("consistent_index"), {7: 9}}, "key": {last, {1}}} {
			b, err := tx.CreateBucket([]byte(bucket))
			if err != nil {
				return err
			}
			err = b.Put(pair[0], pair[1])
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Close()
	if err != nil {
		t.Fatal(err)
	}
}
