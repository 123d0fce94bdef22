package restore_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	testdb "github.com/etcd-dr/etcd-dr/test/database"
)

func withDigest(data []byte) []byte {
	sum := sha256.Sum256(data)
	return append(bytes.Clone(data), sum[:]...)
}

func noise(n int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

// otherBolt returns an intact database of another program.
func otherBolt(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bolt")
	err := testdb.Edit(path, func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("sessions"))
		if err != nil {
			return err
		}
		return b.Put([]byte("a"), []byte("b"))
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func filePlan(t *testing.T, data []byte, skip bool) plan.Plan {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	err := os.WriteFile(path, data, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(catalog.Catalog{}, plan.Target{File: path, SkipHashCheck: skip},
		plan.Layout{Members: []plan.Member{memberAt("m1", "http://127.0.0.1:2380")}, Token: "t",
			Into: one(t, "m1")}, now)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFromFile(t *testing.T) {
	d := plainDatabase(t)
	good := d.snapshot()
	wrong := bytes.Clone(good)
	wrong[len(wrong)-1] ^= 1
	changed := bytes.Clone(good)
	changed[len(changed)-100] ^= 1
	for name, test := range map[string]struct {
		data  []byte
		skip  bool
		words string // of the error; "" for none
	}{
		"good":                      {data: good},
		"good, unasked":             {data: good, skip: true},
		"without digest":            {data: d.bytes, words: "--skip-hash-check"},
		"without digest, skipped":   {data: d.bytes, skip: true},
		"wrong digest":              {data: wrong, words: "does not match the digest"},
		"wrong digest, skipped":     {data: wrong, skip: true},
		"another byte":              {data: changed, words: "does not match the digest"},
		"cut within":                {data: good[:len(good)-33], words: "--skip-hash-check"},
		"cut by a page":             {data: good[:len(good)-4096], words: "does not match the digest"},
		"cut in half, skipped":      {data: d.bytes[:len(d.bytes)/2], skip: true, words: "stage"},
		"empty":                     {words: "--skip-hash-check"},
		"empty, skipped":            {skip: true, words: "stage check"},
		"noise":                     {data: noise(1 << 16), words: "--skip-hash-check"},
		"noise, skipped":            {data: noise(1 << 16), skip: true, words: "stage check"},
		"noise with a digest":       {data: withDigest(noise(1 << 16)), words: "stage check"},
		"little noise with digest":  {data: withDigest(noise(512)), words: "stage check"},
		"another program's":         {data: withDigest(otherBolt(t)), words: "it is not an etcd database"},
		"another program's, asked":  {data: otherBolt(t), skip: true, words: "it is not an etcd database"},
		"a backup that is still it": {data: []byte("\x28\xb5\x2f\xfd sealed"), skip: true, words: "stage check"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := filePlan(t, test.data, test.skip)
			r, err := restore.Spawn(t.Context(), p, child.Source{}, nil)
			if test.words == "" {
				if err != nil {
					t.Fatal(err)
				}
				if r.File != p.File || r.Revision != d.revision || r.Keys != d.keys ||
					!strings.Contains(r.HashKV, "not compared") {
					t.Errorf("result %+v", r)
				}
				return
			}
			if !errors.Is(err, catalog.ErrDamaged) || !strings.Contains(err.Error(), test.words) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line of ErrDamaged with %q", err, test.words)
			}
			wantNothing(t, p.Into)
		})
	}
}

func TestFromAMissingFile(t *testing.T) {
	p := filePlan(t, nil, false)
	err := os.Remove(p.File)
	if err != nil {
		t.Fatal(err)
	}
	_, err = restore.Run(t.Context(), p, child.Opened{Keys: fixture{}.keys}, nil)
	if !errors.Is(err, catalog.ErrNotFound) || !strings.Contains(err.Error(), p.File) {
		t.Errorf("error %v", err)
	}
	wantNothing(t, p.Into)
}
