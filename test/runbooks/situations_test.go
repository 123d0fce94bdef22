package runbooks

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/database"
)

// dated changes the time of the newest backup by d, as if it had been taken by a host with a wrong clock.
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
		m, err := catalog.Manifests.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		m.Started, m.Finished = m.Started.Add(d), m.Finished.Add(d)
		m.ID = catalog.NewID(m.Started, m.Revision)
		data, err = catalog.Manifests.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		err = os.Rename(old, filepath.Join(folder, string(m.ID)))
		if err != nil {
			t.Fatal(err)
		}
		err = os.WriteFile(filepath.Join(folder, string(m.ID), "manifest.json"), data, 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}}
}

// diverged changes a value in the database of a stopped member.
func diverged(member string) step {
	return step{do: func(t *testing.T, h *host) {
		t.Helper()
		err := database.ChangeLast(h.Path(filepath.Join("/var/lib/etcd", member, "member/snap/db")))
		if err != nil {
			t.Fatal(err)
		}
	}}
}

// clientCertificate replaces the service's certificate with one that ends after d.
func clientCertificate(name string, d time.Duration) step {
	return step{do: func(t *testing.T, h *host) {
		t.Helper()
		cert, key := h.certificates.Client(name, d)
		h.must(t, "cp "+cert+" /etc/etcd/client.crt && cp "+key+" /etc/etcd/client.key")
	}}
}
