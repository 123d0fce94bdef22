package controller

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// spools is the folder in which archived logs wait for their stores: in a folder of each namespace, below that in one of each cluster. An
// agent removes the folder of its cluster when it ends, unless segments wait there.
type spools struct {
	dir    string // "": there is none
	report storage.Report
}

// tidied returns run with one more step: it removes the folder of the namespace with the last of its spools.
func (s spools) tidied(run archiveFunc) archiveFunc {
	return func(ctx context.Context, c archive.Config, to *repository.Cluster) error {
		err := run(ctx, c, to)
		if c.Spool != "" {
			_ = os.Remove(c.Spool) // fails if it contains anything
		}
		return err
	}
}

// archiveFunc archives a log until ctx ends.
type archiveFunc func(ctx context.Context, c archive.Config, to *repository.Cluster) error

// closeUnused closes the spools of EtcdBackups that were deleted, or no longer archive their logs, while no operator ran: none will be
// opened again. all are the EtcdBackups that exist.
func (s spools) closeUnused(all []v1alpha1.EtcdBackup) {
	used := map[string]bool{}
	for i := range all {
		b := &all[i]
		if b.Spec.Archive != nil && checkName(b) == nil {
			used[filepath.Join(s.dir, b.Namespace, clusterOf(b))] = true
		}
	}
	for _, dir := range s.list() {
		if !used[dir] {
			s.close(dir)
		}
	}
}

// list returns the folders of all spools. It ignores other folders, such as lost+found at the root of a volume.
func (s spools) list() (all []string) {
	if s.dir == "" {
		return nil
	}
	locks, _ := fs.Glob(os.DirFS(s.dir), "*/*/"+archive.SpoolLock) // the only error is a bad pattern
	for _, lock := range locks {
		namespace, _, _ := strings.Cut(lock, "/")
		if validation.IsDNS1123Label(namespace) == nil {
			all = append(all, filepath.Join(s.dir, filepath.Dir(lock)))
		}
	}
	return all
}

// close removes a spool, and the folder of its namespace if that was the last one. If segments wait in it, it stays and is reported.
func (s spools) close(dir string) {
	namespace, cluster := filepath.Split(dir)
	err := archive.CloseSpool(namespace, cluster, func(format string, args ...any) { s.warn(cluster, format, args...) })
	if err != nil {
		s.warn(cluster, "the spool %s stays: %v", dir, err)
	}
	_ = os.Remove(namespace) // fails if it contains anything
}

func (s spools) warn(cluster, format string, args ...any) {
	s.report.Say(storage.Event{Stage: "archive", Level: storage.Warning, Cluster: cluster, Message: fmt.Sprintf(format, args...)})
}
