// Package imported prepares a database that no live cluster sent, so that it can be stored as a backup. The database comes from a
// snapshot file, a copy of a member's database, or the disks of stopped members. A child process copies or rebuilds the database, checks
// every page, and describes it.
//
//	file ──────────────► copy ────────────────────┐
//	disks ─► plan ─────► database, replayed log ──┴─► checked, described ─► Database: a manifest, and bytes to store
//
// The copy is an unlinked file: it disappears with the process.
package imported

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Database is a checked database. Read it from its beginning; it ends with its digest, as etcd sends a snapshot.
type Database struct {
	io.Reader
	Size     int64
	Manifest catalog.Manifest // the facts that the database and its source show, and the Origin

	file *os.File
}

// Close frees the copy.
func (d *Database) Close() error { return d.file.Close() }

// Options are the options of FromFile and FromDisks.
type Options struct {
	Scratch string    // directory for the copy; "": the system's temporary directory
	Written time.Time // when the data was last written; zero: as the times of the files show
	// SkipHashCheck makes FromFile accept a file without the digest that etcd appends.
	SkipHashCheck bool
}

// FromFile returns the database in a snapshot file. The file may be compressed with zstd, gzip or zlib, the only one in a zip archive or, with
// the suffix .Z, compressed with LZW. The error of a damaged file matches
// catalog.ErrDamaged.
func FromFile(ctx context.Context, file string, o Options, report storage.Report) (*Database, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", catalog.ErrNotFound, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file: name a snapshot, such as one of etcdctl snapshot save", plan.ErrLayout, file)
	}
	err = refuseLocked(file)
	if err != nil {
		return nil, err
	}
	d, f, err := o.run(ctx, job{File: file, SkipHashCheck: o.SkipHashCheck}, report)
	if err != nil {
		return nil, err
	}
	err = refuseLocked(file) // a server may have started meanwhile
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	s := newSource(file, filepath.Base(file), info.Size(), info.ModTime())
	origin := o.origin(catalog.OriginFile, s.written())
	origin.File, origin.Size, origin.Modified, origin.Unhashed = s.Place, s.Size, s.Modified, f.Unhashed
	d.describe(f, origin)
	return d, nil
}

// refuseLocked refuses the database of a running server: its pages change while they are copied, and the copy can mix two states
// although every page is whole.
func refuseLocked(file string) error {
	locked, err := salvage.Locked(file)
	if err == nil && locked {
		err = fmt.Errorf("%w: a process has %s open: take a backup of that member, or stop it first", fault.Refused, file)
	}
	return err
}

// origin returns an origin with the time at which the data was last written: o.Written or, if that is zero, written, the time of the
// files. A file's time in the future is wrong, and replaced by now.
func (o Options) origin(kind catalog.OriginKind, written time.Time) *catalog.Origin {
	if !o.Written.IsZero() {
		return &catalog.Origin{Kind: kind, Written: o.Written.UTC(), Given: true}
	}
	now := time.Now()
	if written.After(now) {
		written = now
	}
	return &catalog.Origin{Kind: kind, Written: written.UTC()}
}

// run runs j in a child, in a scratch directory of its own, and returns the database that it made.
func (o Options) run(ctx context.Context, j job, report storage.Report) (*Database, found, error) {
	dir, err := child.NewDir(o.Scratch, "import")
	if err != nil {
		return nil, found{}, err
	}
	defer func() { _ = dir.Remove() }()
	var f found
	j.Dir, err = filepath.Abs(dir.Path)
	if err != nil {
		return nil, found{}, err
	}
	err = child.Call{Verb: ChildVerb, Job: j, Result: &f, Report: report}.Run(ctx)
	if err != nil {
		return nil, found{}, j.named(child.Died(err))
	}
	file, err := os.Open(filepath.Join(j.Dir, databaseName))
	if err != nil {
		return nil, found{}, fmt.Errorf("open the checked database: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, found{}, errors.Join(err, file.Close())
	}
	return &Database{Reader: file, Size: info.Size(), file: file}, f, nil
}

// describe sets the manifest of d to the facts in f, and the origin.
func (d *Database) describe(f found, origin *catalog.Origin) {
	about := f.Description
	d.Manifest = catalog.Manifest{
		Members: about.Members, EtcdVersion: about.Version,
		Revision: about.Revision, RevisionMax: about.Revision,
		RaftIndex: about.Index, RaftIndexMax: about.Index, RaftTerm: about.Term,
		HashKV: &about.HashKV, Auth: about.Auth, Kubernetes: about.Kubernetes, KubernetesEncrypted: about.KubernetesEncrypted,
		Alarms: about.Alarms, Origin: origin,
	}
}

// newest returns the latest time at which a database or log in one of the data dirs was written; zero if there is none.
func newest(dirs []string) (last time.Time, err error) {
	for _, dir := range dirs {
		for _, pattern := range []string{"snap/db", "snap/*.snap.db", "wal/*.wal"} {
			files, err := filepath.Glob(filepath.Join(dir, "member", pattern))
			if err != nil {
				return last, err
			}
			for _, file := range files {
				info, err := os.Stat(file) // the log may be a link to another disk
				if err != nil {
					return last, err
				}
				if info.ModTime().After(last) {
					last = info.ModTime()
				}
			}
		}
	}
	return last, nil
}
