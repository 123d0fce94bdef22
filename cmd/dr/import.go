package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/restore/imported"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/storage"
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
	var f importFlags
	var skipHashCheck bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Store a snapshot file as a backup",
		Long: `import stores a snapshot that etcdctl saved, or a copy of a member's database, as a backup, after it has checked every page. The file
may be compressed with zstd or gzip.

An imported backup is restored only by its id. It belongs to no history of the cluster: no log continues from it, the argument
latest never selects it, and schedules, drills and retention do not count it. prune --imported ID removes it.`,
		Example: `  dr import snapshot.db --repo file:///var/backups/etcd --cluster prod --recipient age1…
  dr import /mnt/etcd/member/snap/db --skip-hash-check --time 2026-11-21T10:00:00Z`,
		Args: oneFile,
	}
	cmd.Flags().BoolVar(&skipHashCheck, "skip-hash-check", false, "accept a file without the digest at its end, such as a copy of member/snap/db")
	f.add(cmd, a)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, err := filepath.Abs(args[0])
		if err != nil {
			return err
		}
		o, err := f.load()
		if err != nil {
			return err
		}
		o.SkipHashCheck = skipHashCheck
		return a.storeImport(cmd.Context(), &f, func(ctx context.Context, _ []backup.Store, report storage.Report) (*imported.Database, error) {
			return imported.FromFile(ctx, file, o, report)
		})
	}
	return cmd
}

// oneFile requires one argument, a file.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s takes one file: see dr %s --help", cmd.Name(), cmd.Name())
	}
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
