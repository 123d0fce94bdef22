package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/restore/imported"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/address"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

// importFlags holds the flags of a backup whose data comes from a file or from disks, not from a live cluster.
type importFlags struct {
	requestFlags
	written string // when the data was last written; "": the times of the files
	scratch string // directory; "": the system's temporary directory
}

func (f *importFlags) add(cmd *cobra.Command, a *app) {
	flags := cmd.Flags()
	flags.StringVar(&f.written, "time", "", "when the data was last written (2026-11-21T10:00:00Z, \"2h ago\"; default: the times of the files)")
	flags.StringVar(&f.scratch, "scratch-dir", "", "directory for the unencrypted copy on which the checks run (default: the system's temporary directory)")
	f.requestFlags.add(cmd, a)
}

// load checks the flags, and completes f.request. It returns the options for reading the data.
func (f *importFlags) load() (o imported.Options, err error) {
	o.Scratch = f.scratch
	if f.written != "" {
		o.Written, err = when.Parse(f.written, time.Now())
		if err != nil {
			return o, usagef("--time: %w", err)
		}
	}
	return o, f.requestFlags.load()
}

func (a *app) importFile() *cobra.Command {
	f := seriesFlags{}
	cmd := &cobra.Command{
		Use:   "import FILE...",
		Short: "Store snapshots that other tools have saved as backups",
		Long: `import stores a snapshot that etcdctl saved, or a copy of a member's database, as a backup, after it has checked every page. The file
may be compressed with zstd, gzip, zlib or, as Gardener does, LZW (.Z), or be the only one in a zip archive.

A FILE may also be a directory, or the URL of a bucket, with everything below: snapshots of k3s, RKE, RKE2, Gardener's
etcd-backup-restore (full ones), bitnami's chart, coreos' etcd-operator, or plain files. The URL of one object stands for that
object, and for those that coreos' operator has written under this path with each interval. When the data was written is known
from the names; else it is when the object was last modified. A damaged file is reported, the others are still stored, and the
exit code is 3. Of a directory, a bucket or several files, what is stored already is not stored again: after an interruption run
import again. --dry-run prints what would be stored, and does not read it.

An imported backup is restored only by its id. It belongs to no history of the cluster: no log continues from it, the argument
latest never selects it, and schedules, drills and retention do not count it. prune --imported ID removes it.`,
		Example: `  dr import snapshot.db --repo file:///var/backups/etcd --cluster prod --recipient age1…
  dr import /mnt/etcd/member/snap/db --skip-hash-check --time 2026-11-21T10:00:00Z
  dr import s3://k3s-backups/prod --from-credentials /etc/dr/old --dry-run`,
		Args: oneSourceOrMore,
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.skipHashCheck, "skip-hash-check", false, "accept a file without the digest at its end, such as a copy of member/snap/db")
	flags.StringVar(&f.credentials, "from-credentials", "", "folder with the credentials of the buckets to import from; DR_CREDENTIALS is not used for them")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print what would be stored, and store nothing")
	f.add(cmd, a)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := f.load()
		if err != nil {
			return err
		}
		o.SkipHashCheck = f.skipHashCheck
		file, alone := f.oneFile(args)
		if !alone {
			return a.importSeries(cmd.Context(), &f, args, o)
		}
		return a.storeImport(cmd.Context(), &f.importFlags, func(ctx context.Context, _ []backup.Store, report storage.Report) (*imported.Database, error) {
			return imported.FromFile(ctx, file, o, report)
		})
	}
	return cmd
}

// seriesFlags are the flags of dr import.
type seriesFlags struct {
	importFlags
	skipHashCheck bool
	credentials   string // folder with those of the sources
	dryRun        bool
}

// oneFile returns the path if the only argument is a file. It is stored even if an earlier import has stored it.
func (f *seriesFlags) oneFile(args []string) (file string, alone bool) {
	if len(args) != 1 || f.dryRun || strings.Contains(args[0], "://") {
		return "", false
	}
	file, err := filepath.Abs(args[0])
	if err != nil {
		return "", false
	}
	info, err := os.Stat(file)
	return file, err != nil || !info.IsDir()
}

func oneSourceOrMore(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("no file: name files, directories or URLs of buckets")
	}
	return nil
}

// importSeries stores everything that the sources contain.
func (a *app) importSeries(ctx context.Context, f *seriesFlags, args []string, o imported.Options) error {
	from := a.store
	from.credentials = f.credentials
	options, err := from.options()
	if err != nil {
		return err
	}
	sources, err := sourcesIn(ctx, args, options)
	if err != nil {
		return err
	}
	if !o.Written.IsZero() && len(sources) > 1 {
		return usagef("--time is for one file, and there are %d: leave it out, or name one file", len(sources))
	}
	places, err := a.seriesPlaces(ctx, f)
	if err != nil {
		return err
	}
	report, done := a.progress()
	f.request.Report = report
	s := imported.Series{Sources: sources, Options: o, DryRun: f.dryRun, Report: report}
	for _, place := range places {
		s.Into = append(s.Into, place.Cluster)
	}
	s.Store = func(ctx context.Context, d *imported.Database, lacking []*repository.Cluster) (catalog.ID, error) {
		to := slices.DeleteFunc(slices.Clone(places), func(p backup.Store) bool { return !slices.Contains(lacking, p.Cluster) })
		result, err := backup.Import(ctx, backup.Database{Reader: d, Size: d.Size, Manifest: d.Manifest}, to, f.request)
		return result.ID, err
	}
	outcomes, err := s.Run(ctx)
	done()
	if outcomes == nil {
		return err
	}
	printErr := a.printSeries(outcomes)
	if err != nil {
		return errors.Join(printErr, err)
	}
	return errors.Join(printErr, imported.Summary(outcomes))
}

// seriesPlaces returns the repositories of an import. A dry run creates none, and leaves out those that do not exist.
func (a *app) seriesPlaces(ctx context.Context, f *seriesFlags) (places []backup.Store, err error) {
	if !f.dryRun {
		places, err = a.places(ctx, *f.repos)
		if err == nil {
			a.warnPlain(f.request.To.Seal().Encryption)
		}
		return places, err
	}
	folders, err := foldersOf(f.repos.urls, f.repos.folders)
	if err != nil {
		return nil, err
	}
	for n, repo := range f.repos.urls {
		a.repo, a.store.credentials = repo, folders[n]
		c, err := a.open(ctx)
		if errors.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		places = append(places, backup.Store{Repository: stores.Shown(repo), Cluster: c})
	}
	return places, nil
}

// sourcesIn returns what may be snapshots in files, directories and buckets.
func sourcesIn(ctx context.Context, args []string, o stores.Options) (all []imported.Source, err error) {
	for _, arg := range args {
		var found []imported.Source
		path, isFile := strings.CutPrefix(arg, "file://")
		if strings.Contains(arg, "://") && !isFile {
			found, err = sourcesAt(ctx, arg, o)
		} else {
			found, err = imported.Files(path)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// sourcesAt returns what may be snapshots at a URL: the objects with its name or, if there is none, those below.
func sourcesAt(ctx context.Context, text string, o stores.Options) ([]imported.Source, error) {
	at, err := address.Parse(text)
	if err != nil {
		return nil, err
	}
	named, namedErr := sourcesNamed(ctx, at, o)
	if len(named) > 0 && namedErr == nil {
		return named, nil
	}
	b, err := stores.Open(ctx, text, o)
	if err != nil {
		return nil, err
	}
	all, err := imported.Objects(ctx, b, at)
	if errors.Is(err, fault.NotFound) && namedErr != nil { // the credentials may be for what is below only
		err = namedErr
	}
	return all, err
}

// sourcesNamed returns the objects with the last part of an address as their name; none if it has only a bucket.
func sourcesNamed(ctx context.Context, at address.Address, o stores.Options) ([]imported.Source, error) {
	folder, name := at.Split()
	if name == "" {
		return nil, nil
	}
	b, err := stores.Open(ctx, folder.String(), o)
	if err != nil {
		return nil, err
	}
	return imported.Named(ctx, b, folder, name)
}

func (a *app) printSeries(outcomes []imported.Outcome) error {
	d := convert.Import(outcomes)
	if a.output == "json" {
		return a.json(document.Line{Result: d})
	}
	var rows [][]string
	for _, s := range d.Sources {
		rows = append(rows, []string{string(s.State), s.Written.UTC().Format(time.RFC3339), s.Tool, size(s.Size), s.Backup, s.Source, s.Why})
	}
	a.table([]string{"STATE", "WRITTEN", "TOOL", "SIZE", "BACKUP", "SOURCE", "WHY"}, rows)
	return nil
}

// databaseReader returns the database that is then stored in the repositories.
type databaseReader func(context.Context, []backup.Store, storage.Report) (*imported.Database, error)

// storeImport stores the database that read returns. It opens the repositories first, so that a wrong flag shows at once.
func (a *app) storeImport(ctx context.Context, f *importFlags, read databaseReader) error {
	places, err := a.places(ctx, *f.repos)
	if err != nil {
		return err
	}
	a.warnPlain(f.request.To.Seal().Encryption)
	report, done := a.progress()
	var result backup.Result
	database, err := read(ctx, places, report)
	f.request.Report = report
	if err == nil {
		result, err = backup.Import(ctx, backup.Database{Reader: database, Size: database.Size, Manifest: database.Manifest}, places, f.request)
		_ = database.Close() // no error matters: the database was only read
	}
	done()
	return a.printStored(result, err)
}
