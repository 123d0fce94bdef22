package restore_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	testdb "github.com/etcd-dr/etcd-dr/test/database"
)

// etcd's store panics on an invalid value on intact pages while it holds its backend's locks. Closing the backend then blocked
// for ever, and with it the restore.
func TestAValueThatCannotBeReadDoesNotHang(t *testing.T) {
	s := store(t, unreadable(t), nil)
	p := s.plan(t, plan.Layout{Into: all(t)})
	_, err := restore.Spawn(t.Context(), p, s.source(), nil)
	if !errors.Is(err, catalog.ErrDamaged) || !strings.Contains(err.Error(), "stage prove") {
		t.Errorf("error %v", err)
	}
	wantNothing(t, p.Into)
}

// unreadable returns a database whose newest value has random bytes in the place of the fields' tags.
func unreadable(t *testing.T) database {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	value := bytes.Repeat([]byte("a value that stands there only once "), 10)
	err := testdb.Write(path, func(_ backend.Backend, store mvcc.KV) error {
		for range 100 {
			store.Put([]byte("key"), value, lease.NoLease)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Field 1 of a KeyValue is the key; its tag and length precede it.
	content = bytes.ReplaceAll(content, []byte("\x0a\x03key"), []byte("\xff\xffkey"))
	return database{bytes: content, revision: 2}
}
