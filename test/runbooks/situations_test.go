package runbooks

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// dated makes the newest backup one that was taken earlier or later by d, as if by a host whose clock was so.
func dated(d time.Duration) step {
	return step{do: func(t *testing.T, h *host) {
		t.Helper()
		folder := h.Path("/var/backups/etcd/prod/backups")
		entries, err := os.ReadDir(folder)
		if err != nil || len(entries) == 0 {
			t.Fatalf("no backups: %v", err)
		}
		old := filepath.Join(folder, entries[len(entries)-1].Name())
		data, err := os.ReadFile(filepath.Join(old, "manifest.json"))
		if err != nil {
			t.Fatal(err)
		}
		m, err := repository.DecodeManifest(data)
		if err != nil {
			t.Fatal(err)
		}
		m.Started, m.Finished = m.Started.Add(d), m.Finished.Add(d)
		m.ID = repository.NewID(m.Started, m.Revision)
		if data, err = repository.EncodeManifest(m); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(old, filepath.Join(folder, string(m.ID))); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, string(m.ID), "manifest.json"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}}
}

// diverged changes a value in the database of a member that does not run.
func diverged(member string) step {
	return step{do: func(t *testing.T, h *host) {
		t.Helper()
		path := h.Path(filepath.Join("/var/lib/etcd", member, "member/snap/db"))
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.Update(changeNewest); err != nil {
			t.Fatal(err)
		}
	}}
}

// changeNewest changes the value of the newest revision.
func changeNewest(tx *bbolt.Tx) error {
	bucket := tx.Bucket([]byte("key"))
	revision, stored := bucket.Cursor().Last()
	var kv mvccpb.KeyValue
	if err := proto.Unmarshal(stored, &kv); err != nil {
		return err
	}
	kv.Value = append(kv.Value, "another"...)
	changed, err := proto.Marshal(&kv)
	if err != nil {
		return err
	}
	return bucket.Put(slices.Clone(revision), changed)
}

// clientCertificate puts another certificate where the service has it, which ends after d.
func clientCertificate(name string, d time.Duration) step {
	return step{do: func(t *testing.T, h *host) {
		t.Helper()
		cert, key := h.certificates.Client(name, d)
		h.must(t, "cp "+cert+" /etc/etcd/client.crt && cp "+key+" /etc/etcd/client.key")
	}}
}
