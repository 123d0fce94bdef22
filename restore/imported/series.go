package imported

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Series stores many sources, one after the other. What an earlier series has stored is not stored again, so an interrupted one continues.
type Series struct {
	Sources []Source
	Options Options
	Into    []*repository.Cluster // where Store stores
	// Store stores a database as a backup in those repositories that lack it. It returns the backup's id with an error if only some have it.
	Store  func(ctx context.Context, d *Database, lacking []*repository.Cluster) (catalog.ID, error)
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
	Untried State = "untried" // the series ended before
)

// Outcome is the outcome of one source.
type Outcome struct {
	Source
	State    State
	Backup   catalog.ID // "" unless it is a backup
	Revision int64      // of the backup; 0 if there is none
	Written  time.Time  // when the data was last written: the given time, that in the name, or when the object was modified
	Err      error      // why it failed
}

// Run carries out s. A source that is damaged or refused does not end the series. The error is the one that ended it: of reading the repositories,
// of storing, of a store that does not answer, or the end of ctx.
func (s Series) Run(ctx context.Context) (outcomes []Outcome, err error) {
	present, err := s.present(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[key]bool{}
	for _, source := range s.Sources {
		k := keyOf(source.Place, source.Size, source.Modified)
		if seen[k] { // named twice
			continue
		}
		seen[k] = true
		o := Outcome{Source: source, Written: s.Options.origin(catalog.OriginFile, source.written()).Written}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		switch {
		case err != nil:
			o.State = Untried
		case len(s.Into) > 0 && len(present[k].in) == len(s.Into):
			b := present[k].backup
			o.State, o.Backup, o.Revision, o.Written = Present, b.ID, b.Revision, b.Origin.Written
		case source.err != nil:
			o.State, o.Err = Failed, source.err
		case source.Name.Unusable != "":
			o.State = Skipped
		case s.DryRun:
			o.State = Planned
		default:
			err = s.store(ctx, &o, present[k].lacking(s.Into))
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, err
}

// store imports one source, and completes its outcome. It returns the error if it ends the series.
func (s Series) store(ctx context.Context, o *Outcome, lacking []*repository.Cluster) error {
	d, err := s.read(ctx, o.Source)
	if err != nil && ctx.Err() != nil {
		o.State = Untried
		return context.Cause(ctx)
	}
	if err != nil {
		o.State, o.Err = Failed, err
		switch fault.KindOf(err) {
		case fault.Damaged, fault.Refused, fault.NotFound, fault.Usage:
			return nil
		}
		return err
	}
	defer d.Close() // no error matters: the database is only read
	o.Revision = d.Manifest.Revision
	d.Manifest.Origin.Written = o.Written
	o.Backup, err = s.Store(ctx, d, lacking)
	switch {
	case err == nil:
		o.State = Stored
	case ctx.Err() != nil && o.Backup == "":
		o.State = Untried
	default:
		o.State, o.Err = Failed, err
	}
	return err
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
		file, err = source.download(ctx, dir.Path)
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

// imports is a source that is a backup in some repositories.
type imports struct {
	backup catalog.Backup
	in     map[*repository.Cluster]bool
}

// lacking returns the repositories that do not have the backup.
func (i imports) lacking(all []*repository.Cluster) []*repository.Cluster {
	return slices.DeleteFunc(slices.Clone(all), func(c *repository.Cluster) bool { return i.in[c] })
}

// present returns the sources that are backups already.
func (s Series) present(ctx context.Context) (map[key]imports, error) {
	all := map[key]imports{}
	for _, c := range s.Into {
		cat, err := c.Load(ctx, backups.LoadOptions{Imported: true})
		if err != nil {
			return nil, err
		}
		for _, b := range cat.Imported {
			k := keyOf(b.Origin.File, b.Origin.Size, b.Origin.Modified)
			i, ok := all[k]
			if !ok {
				i = imports{in: map[*repository.Cluster]bool{}}
			}
			i.backup, i.in[c] = b, true
			all[k] = i
		}
	}
	return all, nil
}

// Summary returns an error if sources have failed, of the kind of the first one's; nil if none has.
func Summary(outcomes []Outcome) error {
	var first error
	failed := 0
	for _, o := range outcomes {
		if o.Err != nil {
			failed++
			first = cmp.Or(first, o.Err)
		}
	}
	switch {
	case failed == 0:
		return nil
	case errors.Is(first, fault.Damaged):
		return fmt.Errorf("%d of %d files are not imported, the first: %w", failed, len(outcomes), first)
	}
	return fmt.Errorf("%d of %d files are not imported (%w), the first: %v", failed, len(outcomes), catalog.ErrDamaged, first)
}
