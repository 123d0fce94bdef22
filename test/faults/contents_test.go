package faults

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
)

// files returns the paths of all regular files below dir, or none if dir is missing.
func files(t testing.TB, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return paths
}

// contents returns the contents of the data dirs below dir in a form that is equal for every restore of the same
// backup.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, path := range files(t, dir) {
		text, err := content(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = text
	}
	return all
}

func content(path string) (string, error) {
	switch {
	case filepath.Base(path) == "db":
		return databaseDigest(path)
	case filepath.Ext(path) == ".snap": // it has its own CRC; its nodes are in a random order
		snapshot, err := snap.Read(zap.NewNop(), path)
		return fmt.Sprint(snapshot.GetMetadata()), err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, f)
	return hex.EncodeToString(hash.Sum(nil)), err
}

// databaseDigest covers every bucket, key and value. The file's own bytes vary: bbolt writes buckets in a map's order.
func databaseDigest(path string) (string, error) {
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return "", err
	}
	defer db.Close()
	hash := sha256.New()
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
			fmt.Fprintf(hash, "bucket %q\n", name)
			return bucket.ForEach(func(k, v []byte) error {
				fmt.Fprintf(hash, "%d %d ", len(k), len(v))
				hash.Write(k)
				hash.Write(v)
				return nil
			})
		})
	})
	return hex.EncodeToString(hash.Sum(nil)), err
}
