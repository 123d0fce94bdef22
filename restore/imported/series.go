package imported

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Series stores many sources, one after the other. What an earlier series has stored is not stored again, so an interrupted one continues.
type Series struct {
	Sources []Source
	Options Options
	Into    []*repository.Cluster // where Store stores
	// Store stores a database as a backup. It returns the backup's id with an error if only some repositories have it.
	Store  func(context.Context, *Database) (catalog.ID, error)
	DryRun bool // store nothing
	Report storage.Report
}

// State is the state of a source after a series.
type State string

// The states.
const (
	Stored  State = "stored"  // it is a backup now
	Present State = "present" // an earlier import has stored it
	Skipped State = "skipped" // by its name it is no snapshot that can be imported
	Failed  State = "failed"
	Planned State = "planned" // a dry run would store it
)

// Outcome is the outcome of one source.
type Outcome struct {
	Source
	State    State
	Backup   catalog.ID // "" unless it is a backup
	Revision int64      // of the backup; 0 if there is none
	Written  time.Time  // when the data was last written: as given, as the name tells, or when the object was modified
	Err      error      // why it failed
}

// Run carries out s. A source that fails does not end the series. The error is that of reading the repositories, or the end of ctx.
func (s Series) Run(ctx context.Context) (outcomes []Outcome, err error) {
	present, err := s.present(ctx)
	if err != nil {
		return nil, err
	}
	for _, source := range s.Sources {
		if ctx.Err() != nil {
			return outcomes, context.Cause(ctx)
		}
		o := Outcome{Source: source, Written: s.written(source)}
		b, ok := present[keyOf(source.Place, source.Size, source.Modified)]
		switch {
		case ok:
			o.State, o.Backup, o.Revision, o.Written = Present, b.ID, b.Revision, b.Origin.Written
		case source.Name.Unusable != "":
			o.State = Skipped
		case s.DryRun:
			o.State = Planned
		default:
			s.store(ctx, &o)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

// written returns when the data of a source was last written.
func (s Series) written(source Source) time.Time {
	written := source.Modified
	switch {
	case !s.Options.Written.IsZero():
		return s.Options.Written.UTC()
	case !source.Name.Written.IsZero():
		written = source.Name.Written
	}
	now := time.Now()
	if written.After(now) {
		written = now
	}
	return written.UTC()
}

// store imports one source, and completes its outcome.
func (s Series) store(ctx context.Context, o *Outcome) {
	d, err := s.read(ctx, o.Source)
	if err == nil {
		o.Revision = d.Manifest.Revision
		d.Manifest.Origin.Written = o.Written
		o.Backup, err = s.Store(ctx, d)
		_ = d.Close() // no error matters: the database was only read
	}
	o.State, o.Err = Stored, err
	if err != nil {
		o.State = Failed
	}
}

// read returns the database of a source.
func (s Series) read(ctx context.Context, source Source) (d *Database, err error) {
	file := source.Place
	if source.open != nil {
		dir, err := child.NewDir(s.Options.Scratch, ChildVerb)
		if err != nil {
			return nil, err
		}
		defer func() { _ = dir.Remove() }()
		s.Report.Say(storage.Event{Stage: "fetch", Message: "fetching the object", Object: source.Place})
		file, err = source.download(ctx, dir.Path, path.Base(filepath.ToSlash(source.Place)))
		if err != nil {
			return nil, err
		}
	}
	d, err = FromFile(ctx, file, s.Options, s.Report)
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", source.Place, err)
	}
	origin := d.Manifest.Origin
	origin.File, origin.Size, origin.Modified = source.Place, source.Size, source.Modified
	return d, nil
}

// key identifies the content of a source without reading it.
type key struct {
	place    string
	size     int64
	modified int64 // in nanoseconds since 1970
}

func keyOf(place string, size int64, modified time.Time) key {
	return key{place, size, modified.UnixNano()}
}

// present returns the sources that are backups in all repositories.
func (s Series) present(ctx context.Context) (map[key]catalog.Backup, error) {
	times, found := map[key]int{}, map[key]catalog.Backup{}
	for _, c := range s.Into {
		cat, err := c.Load(ctx, backups.LoadOptions{Imported: true})
		if err != nil {
			return nil, err
		}
		here := map[key]bool{}
		for _, b := range cat.Imported {
			k := keyOf(b.Origin.File, b.Origin.Size, b.Origin.Modified)
			if !here[k] {
				times[k]++
			}
			here[k], found[k] = true, b
		}
	}
	for k, n := range times {
		if n < len(s.Into) {
			delete(found, k)
		}
	}
	return found, nil
}

// Errors returns the errors of the sources that failed, joined; nil if none did.
func Errors(outcomes []Outcome) error {
	var all []error
	for _, o := range outcomes {
		all = append(all, o.Err)
	}
	return errors.Join(all...)
}
