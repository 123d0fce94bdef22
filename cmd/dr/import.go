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

// importFlags configure the storing of a database that no live cluster sends.
type importFlags struct {
	request backup.Request
	to      sealFlags
	require string
	written string
	scratch string
	repos   *repositories
}

func (f *importFlags) add(cmd *cobra.Command, a *app) {
	flags := cmd.Flags()
	flags.StringVar(&f.written, "time", "", "when the data was last written (2026-11-21T10:00:00Z, \"2h ago\"; default: the times of the files)")
	flags.StringVar(&f.scratch, "scratch-dir", "", "directory for an unencrypted copy that is checked (default: the system's temporary directory)")
	flags.StringToStringVar((*map[string]string)(&f.request.Labels), "label", nil, "name=value, stored with the backup; may be given several times")
	flags.DurationVar(&f.request.Grace, "grace", grace, "remove leftovers of killed backups that are older than this")
	flags.StringVar(&f.require, "require", string(backup.All), "all or any: which of several repositories must have the backup")
	f.to.add(cmd, a.getenv)
	f.repos = a.repositoriesFlags(cmd)
	a.store.trustFlags(cmd, a.getenv)
	a.store.writeFlags(cmd, a.getenv)
	a.store.transferFlags(cmd)
	a.outputFlag(cmd)
}

// load checks the flags, and reads the recipients.
func (f *importFlags) load() (o imported.Options, err error) {
	f.request.Require = backup.Require(f.require)
	switch {
	case f.request.Grace <= 0:
		return o, usagef("--grace must be above zero")
	case f.request.Require != backup.All && f.request.Require != backup.Any:
		return o, usagef("--require %s: use all or any", f.require)
	}
	o.Scratch = f.scratch
	if f.written != "" {
		o.Written, err = when.Parse(f.written, time.Now())
		if err != nil {
			return o, usagef("--time: %w", err)
		}
	}
	f.request.Plain, f.request.Version = f.to.plain, version()
	f.request.To, err = f.to.load()
	return o, err
}

func (a *app) importFile() *cobra.Command {
	var f importFlags
	var skipHashCheck bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Store a snapshot file as a backup",
		Long: `import stores a snapshot of etcdctl, or a copy of a member's database, as a backup, after it has checked every page. The file
may be compressed with zstd or gzip.

An imported backup is restored only by its id. It belongs to no history of the cluster: no log continues from it, latest never
means it, and schedules, drills and retention do not count it. prune --imported ID removes it.`,
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
		return a.storeImport(cmd.Context(), &f, func(ctx context.Context, report storage.Report) (*imported.Database, error) {
			return imported.FromFile(ctx, file, skipHashCheck, o, report)
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

// databaseReader returns the database to store.
type databaseReader func(context.Context, storage.Report) (*imported.Database, error)

// storeImport stores the database that read returns. It opens the repositories first, so that a wrong flag shows at once.
func (a *app) storeImport(ctx context.Context, f *importFlags, read databaseReader) error {
	places, err := a.places(ctx, *f.repos)
	if err != nil {
		return err
	}
	a.warnPlain(f.request.To.Seal().Encryption)
	report, done := a.progress()
	var result backup.Result
	database, err := read(ctx, report)
	if err == nil {
		result, err = backup.Import(ctx, backup.Database{Reader: database, Size: database.Size, Manifest: database.Manifest}, places, f.request, report)
		_ = database.Close() // it was only read
	}
	done()
	if result.ID == "" {
		return err
	}
	if printed := a.printBackup(result); printed != nil {
		return printed
	}
	return err
}
