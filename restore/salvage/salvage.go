// Package salvage reads the data dirs of stopped members, after a disaster.
//
//	data dir ── member/snap/db ── a few pages ──► Database: its index, revision and members
//	         ── member/wal ── all of it ──► Log: its entries, the last one certainly committed, and its damage
//
// It writes, locks and maps nothing, because these disks may be the last copy. Running reports whether another process has
// locked them.
package salvage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/etcd-dr/etcd-dr/restore/disk"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrNoMember reports a directory that is not a member's data dir.
var ErrNoMember = fault.New(fault.Usage, "not a data dir of etcd")

// Survey reads each data dir. Each Disk also contains its log's entries at the positions where the segments in c end, for
// comparison with them. Survey returns an error that matches ErrNoMember, or one of the file system. Damage is not an error: the
// Disk describes it.
func Survey(ctx context.Context, c catalog.Catalog, dirs []string, report storage.Report) ([]disk.Disk, error) {
	ends := segmentEnds(c)
	var disks []disk.Disk
	for _, dir := range dirs {
		report.Say(storage.Event{Stage: "survey", Object: dir, Message: "reading what is left in " + dir})
		d, err := survey(ctx, dir, ends)
		if err != nil {
			return nil, fmt.Errorf("read the data dir %s: %w", dir, err)
		}
		disks = append(disks, d)
	}
	return disks, nil
}

// segmentEnds returns the positions at which the segments in c end.
func segmentEnds(c catalog.Catalog) map[uint64]bool {
	ends := map[uint64]bool{}
	for _, l := range c.Lineages {
		for _, s := range l.Segments {
			ends[s.Last] = true
		}
	}
	return ends
}

// survey reads one data dir.
func survey(ctx context.Context, dir string, ends map[uint64]bool) (d disk.Disk, err error) {
	d.Dir = dir
	for _, sub := range []string{"snap", "wal"} {
		_, err := os.Stat(filepath.Join(dir, "member", sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d, err
		}
	}
	d.Running, err = Running(dir)
	if err != nil {
		return d, err
	}
	d.Databases, err = databases(dir)
	if err != nil {
		return d, err
	}
	var cluster, member uint64
	d.Log, cluster, member, err = readLog(ctx, dir, d.Databases, ends)
	if err != nil {
		return d, err
	}
	if cluster != 0 {
		d.Cluster, d.Member = types.ID(cluster).String(), types.ID(member).String()
	}
	if len(d.Databases) == 0 && cluster == 0 {
		return d, fmt.Errorf("%w: it contains neither member/snap/db nor a log that names its member: name etcd's --data-dir",
			ErrNoMember)
	}
	return d, nil
}
