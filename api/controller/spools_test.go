package controller

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// spoolOf creates the spool of a cluster's log, as a killed operator leaves it, with so many segments.
func (w *world) spoolOf(namespace, cluster string, segments int) {
	w.t.Helper()
	dir := filepath.Join(w.spool, namespace, cluster)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600)
	}
	for _, s := range stored.NewWriter(w.t, cluster, stored.LineageID(1)).Some(segments) {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%016x.seg", s.Header.Lineage, s.Header.Seq)), s.Bytes, 0o600)
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// folders returns the folders of the spool.
func (w *world) folders() (names []string) {
	w.t.Helper()
	err := filepath.WalkDir(w.spool, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && path != w.spool {
			names = append(names, strings.TrimPrefix(path, w.spool+"/"))
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return names
}

// TestSpoolsOfDeletedEtcdBackups starts an operator with the spools of EtcdBackups that were deleted, or archive no log any more, while no
// operator ran: the empty ones are removed, and those with segments are reported. Spools in use and other folders stay as they are.
func TestSpoolsOfDeletedEtcdBackups(t *testing.T) {
	bubble(t, func(w *world) {
		w.stop()
		w.spool = t.TempDir()
		archived, plain := scheduled("payments", "archived"), scheduled("payments", "plain")
		archived.Spec.Archive = &v1alpha1.Archive{}
		w.apply(archived)
		w.apply(plain)
		w.spoolOf("payments", "payments.archived", 0)
		w.spoolOf("payments", "payments.plain", 0)
		w.spoolOf("payments", "payments.deleted", 0)
		w.spoolOf("orders", "orders.deleted", 0)
		w.spoolOf("shop", "shop.deleted", 2)
		w.spoolOf("other", "payments.archived", 0)
		for _, dir := range []string{"lost+found", "data/own"} { // of a file system, and of a person
			err := os.MkdirAll(filepath.Join(w.spool, dir), 0o700)
			if err != nil {
				t.Fatal(err)
			}
		}
		w.start()
		w.pass(2 * time.Second)
		want := []string{"data", "data/own", "lost+found", "payments", "payments/payments.archived", "shop", "shop/shop.deleted"}
		if !slices.Equal(w.folders(), want) {
			t.Errorf("the folders are %q, want %q", w.folders(), want)
		}
		segments, err := filepath.Glob(filepath.Join(w.spool, "shop/shop.deleted/*.seg"))
		if err != nil || len(segments) != 2 {
			t.Errorf("the segments are %q, %v", segments, err)
		}
		warned := slices.DeleteFunc(w.events, func(e storage.Event) bool { return e.Level != storage.Warning })
		if len(warned) != 1 || warned[0].Cluster != "shop.deleted" || !strings.Contains(warned[0].Message, "2 segments of the log") ||
			!strings.Contains(warned[0].Message, filepath.Join(w.spool, "shop/shop.deleted")) {
			t.Errorf("the warnings are %+v, want one of shop.deleted", warned)
		}
	})
}
