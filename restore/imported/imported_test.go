package imported_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/imported"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/database"
)

// TestMain is also the main function of the child.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == child.Argument {
		err := child.Serve(context.Background(), imported.Serve, os.Stdin, os.Stdout)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const puts = 20

// plainDatabase returns a copy of a member's database, without a digest.
func plainDatabase(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	err := database.Write(path, func(be backend.Backend, store mvcc.KV) error {
		tx := be.BatchTx()
		tx.LockOutsideApply()
		schema.UnsafeUpdateConsistentIndex(tx, 2000, 3)
		tx.Unlock()
		schema.NewMembershipBackend(zap.NewNop(), be).MustSaveMemberToBackend(&membership.Member{
			ID: 0xcafe, RaftAttributes: membership.RaftAttributes{PeerURLs: []string{"http://10.0.0.1:2380"}},
			Attributes: membership.Attributes{Name: "m1", ClientURLs: []string{"http://10.0.0.1:2379"}},
		})
		for i := range puts {
			store.Put(fmt.Appendf(nil, "/registry/secrets/default/%d", i), []byte("k8s:enc:aescbc:v1:x"), lease.NoLease)
		}
		return nil
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

func withDigest(data []byte) []byte {
	sum := sha256.Sum256(data)
	return append(bytes.Clone(data), sum[:]...)
}

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	err := os.WriteFile(path, data, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func zipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	err = errors.Join(err, w.Close())
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstdOf(t *testing.T, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

func TestFromFile(t *testing.T) {
	plain := plainDatabase(t)
	whole := withDigest(plain)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for name, test := range map[string]struct {
		data     []byte
		skip     bool
		unhashed bool
		words    string // of the error; "" for none
	}{
		"a snapshot":                        {data: whole},
		"a snapshot, skipped":               {data: whole, skip: true},
		"zstd":                              {data: zstdOf(t, whole)},
		"gzip":                              {data: zipped(t, whole)},
		"without digest":                    {data: plain, words: "--skip-hash-check"},
		"without digest, skipped":           {data: plain, skip: true, unhashed: true},
		"without digest, zstd, skipped":     {data: zstdOf(t, plain), skip: true, unhashed: true},
		"another byte":                      {data: flipped, words: "does not match the digest"},
		"another byte, skipped":             {data: flipped, skip: true, words: "does not match the digest"},
		"cut by bytes":                      {data: whole[:len(whole)-7], skip: true, words: "which no database has"},
		"cut by pages, skipped":             {data: plain[:len(plain)/2], skip: true, words: "stage"},
		"cut gzip":                          {data: zipped(t, whole)[:300], words: "cannot be read to its end"},
		"cut zstd":                          {data: zstdOf(t, whole)[:300], words: "cannot be read to its end"},
		"empty, skipped":                    {skip: true, words: "--skip-hash-check"},
		"noise with a digest":               {data: withDigest(bytes.Repeat([]byte{7}, 1<<15)), words: "stage check"},
		"a digest alone":                    {data: withDigest(nil), words: "stage check"},
		"zeros of a database's size, asked": {data: make([]byte, 1<<15), skip: true, words: "stage check"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scratch := t.TempDir()
			d, err := imported.FromFile(t.Context(), write(t, "snapshot.db", test.data), imported.Options{Scratch: scratch, SkipHashCheck: test.skip}, nil)
			left, readErr := os.ReadDir(scratch)
			if readErr != nil || len(left) > 0 {
				t.Errorf("%d files are left in the scratch directory, %v", len(left), readErr)
			}
			if test.words != "" {
				if !errors.Is(err, catalog.ErrDamaged) || !strings.Contains(err.Error(), test.words) || !strings.Contains(err.Error(), "snapshot.db") {
					t.Errorf("error %v, want damage and %q", err, test.words)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			got, err := io.ReadAll(d)
			if err != nil || !bytes.Equal(got, whole) || d.Size != int64(len(whole)) {
				t.Errorf("%d bytes, %v, want the snapshot with its digest", len(got), err)
			}
			if d.Manifest.Origin.Unhashed != test.unhashed {
				t.Errorf("origin %+v", d.Manifest.Origin)
			}
		})
	}
}

// TestOneFlippedBit refuses a snapshot of each form in which one bit differs.
func TestOneFlippedBit(t *testing.T) {
	whole := withDigest(plainDatabase(t))
	for name, data := range map[string][]byte{
		"snapshot.db": bytes.Clone(whole), "snapshot.zst": zstdOf(t, whole), "snapshot.gz": zipped(t, whole), "snapshot.zlib": compressed(t, whole, zlibOf),
		"snapshot.Z": compressed(t, whole, lzwOf), "snapshot.zip": archived(t, map[string][]byte{"snapshot": whole}),
	} {
		data[len(data)/2] ^= 4
		_, err := imported.FromFile(t.Context(), write(t, name, data), imported.Options{}, nil)
		if !errors.Is(err, catalog.ErrDamaged) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFromFileDescribes(t *testing.T) {
	file := write(t, "snapshot.db", withDigest(plainDatabase(t)))
	then := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	err := os.Chtimes(file, then, then)
	if err != nil {
		t.Fatal(err)
	}
	d, err := imported.FromFile(t.Context(), file, imported.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m := d.Manifest
	if m.Revision != puts+1 || m.RevisionMax != puts+1 || m.RaftIndex != 2000 || m.RaftTerm != 3 || m.ClusterID != "" || m.HashKV.Revision != puts+1 {
		t.Errorf("manifest %+v", m)
	}
	if !m.Kubernetes || !m.KubernetesEncrypted || m.Auth || len(m.Members) != 1 || m.Members[0].Name != "m1" || m.Members[0].ID != "cafe" {
		t.Errorf("manifest %+v", m)
	}
	o := m.Origin
	if o.Kind != catalog.OriginFile || o.File != file || !o.Written.Equal(then) || o.Given {
		t.Errorf("origin %+v", o)
	}
	given := then.Add(time.Hour)
	d, err = imported.FromFile(t.Context(), file, imported.Options{Written: given}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	o = d.Manifest.Origin
	if !o.Written.Equal(given) || !o.Given {
		t.Errorf("origin with a time of the operator: %+v", o)
	}
}

func TestFromFileRefuses(t *testing.T) {
	_, err := imported.FromFile(t.Context(), t.TempDir(), imported.Options{}, nil)
	if !errors.Is(err, plan.ErrLayout) {
		t.Errorf("a directory: %v", err)
	}
	_, err = imported.FromFile(t.Context(), filepath.Join(t.TempDir(), "none"), imported.Options{}, nil)
	if !errors.Is(err, catalog.ErrNotFound) {
		t.Errorf("a missing file: %v", err)
	}
}
