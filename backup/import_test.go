package backup_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

var written = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func databaseOf(from io.Reader, size int) backup.Database {
	return backup.Database{Reader: from, Size: int64(size), Manifest: catalog.Manifest{
		Revision: 7, Origin: &catalog.Origin{Kind: catalog.OriginFile, Written: written, File: "/srv/snapshot.db"},
	}}
}

// An imported backup comes back as it was, signed and encrypted, from each store, and is no part of the cluster's history.
func TestImport(t *testing.T) {
	r, keys := request(t)
	signer := stored.NewSigner(t)
	var to []backup.Store
	for i := range 2 {
		c, err := repository.OpenWith(mem.New(), "prod", records.Policy{Key: signer.Key})
		if err != nil {
			t.Fatal(err)
		}
		to = append(to, backup.Store{Repository: nameOf(i), Cluster: c})
	}
	data := bytes.Repeat([]byte("a database "), 10_000)
	r.Labels = catalog.Labels{"why": "moved"}
	result, err := backup.Import(t.Context(), databaseOf(bytes.NewReader(data), len(data)), to, r)
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, "import", result, 2)
	if !result.ID.IsImport() || !result.Started.Equal(written) || !result.Finished.Equal(written) || time.Since(result.Origin.Imported) > time.Hour ||
		result.Labels["why"] != "moved" || result.DRVersion != "test" {
		t.Errorf("manifest %+v", result.Manifest)
	}
	for _, one := range to {
		cat := stored.Load(t, one.Cluster, backups.LoadOptions{Imported: true})
		if len(cat.Backups) != 0 || len(cat.Imported) != 1 {
			t.Fatalf("%s has %d backups and %d imports", one.Repository, len(cat.Backups), len(cat.Imported))
		}
		got, err := stored.Fetch(t, one.Cluster, cat.Imported[0], keys)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes came back, %v", one.Repository, len(got), err)
		}
	}
}

// A database that cannot be read to its end leaves nothing.
func TestImportOfAFaultyDatabase(t *testing.T) {
	r, _ := request(t)
	places := memories(2)
	broken := io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), iotest.ErrReader(errStore))
	_, err := backup.Import(t.Context(), databaseOf(broken, 2<<20), places.stores(t), r)
	if !errors.Is(err, errStore) {
		t.Errorf("error %v", err)
	}
	for _, b := range places {
		for key := range objects(t, b) {
			t.Errorf("%s is left", key)
		}
	}
}

// An import keeps the promise that the backups of an encrypted repository are encrypted.
func TestImportWithoutARecipient(t *testing.T) {
	places := memories(1)
	to := places.stores(t)
	sealed, keys := request(t)
	_, err := backup.RunOfStream(t.Context(), []byte("own"), to, sealed, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := sealed
	r.To = seal.Recipients{}
	_, err = backup.Import(t.Context(), databaseOf(strings.NewReader("plain"), 5), to, r)
	if !errors.Is(err, fault.Refused) {
		t.Errorf("error %v", err)
	}
	r.Plain = true
	result, err := backup.Import(t.Context(), databaseOf(strings.NewReader("plain"), 5), to, r)
	if err != nil || result.Seal.Encryption != "" {
		t.Errorf("with --plain: %+v, %v", result.Seal, err)
	}
	got, err := stored.Fetch(t, to[0].Cluster, result.Backup, keys)
	if err != nil || string(got) != "plain" {
		t.Errorf("%q came back, %v", got, err)
	}
}
