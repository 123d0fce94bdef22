package kubernetes

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
)

// testAPIServerIsDown stops the API server while a backup is due each minute and the log is archived. The store's own times show that
// backups and segments go on; afterwards the status names the newest backup, and no operator was started again.
func (s *site) testAPIServerIsDown(t *testing.T) {
	s.startEtcd(t, "orders", "3.7")
	s.apply(t, "orders", `
  schedule: {cron: "* * * * *"}
  archive: {flush: 1s}
`)
	s.Kubectl(t, "", "-n", "orders", "wait", "--for=condition=Protected", "--timeout="+patience.String(), "etcdbackup/etcd")
	s.put(t, "orders", "order", "before")
	s.stored(t, "orders", "log/", time.Time{}, 1)

	s.StopComponent(t, "kube-apiserver")
	since := time.Now()
	s.put(t, "orders", "order", "meanwhile")
	s.stored(t, "orders", "log/", since, 1)
	s.stored(t, "orders", "backups/", since.Add(time.Minute), 2) // the first may have been due before
	s.StartComponent(t, "kube-apiserver")

	s.Eventually(t, "ok", "get", "--raw", "/readyz")
	s.put(t, "orders", "order", "after")
	eventually(t, "the status names the newest backup", func() bool {
		listed := dr[document.List](t, s, "list", "--repo", s.urls["orders"], "--cluster", "orders.etcd").Backups
		named, err := s.Try("", "-n", "orders", "get", "edb", "etcd", "-o", "jsonpath={.status.last.id}")
		return err == nil && named == string(listed[0].ID)
	})
	restarts := s.Kubectl(t, "", "-n", "etcd-dr", "get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	if restarts != "0 0" {
		t.Errorf("the operators were started again: %s", restarts)
	}
	window := s.Kubectl(t, "", "-n", "orders", "get", "edb", "etcd", "-o", "jsonpath={.status.window}")
	if !strings.Contains(window, "from") {
		t.Errorf("the status has the window %q", window)
	}
	s.wantPoint(t, "orders", "3.7")
}

// stored waits until the bucket contains n objects whose keys contain a part, which are newer than a time by the store's clock.
func (s *site) stored(t *testing.T, bucket, part string, after time.Time, n int) {
	t.Helper()
	eventually(t, "objects "+part+" are stored", func() bool {
		found := 0
		err := filepath.WalkDir(s.store.Folder(bucket), func(path string, entry fs.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil // renamed or deleted meanwhile
			}
			if err != nil || entry.IsDir() || !strings.Contains(path, part) {
				return err
			}
			info, err := entry.Info()
			if err == nil && info.ModTime().After(after) {
				found++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return found >= n
	})
}
