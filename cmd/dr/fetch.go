package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

func (a *app) fetch() *cobra.Command {
	var keys keyFlags
	var plain plainFlags
	var to string
	cmd := &cobra.Command{
		Use:   "fetch [ID|latest] --to snapshot.db",
		Short: "Download a backup as a plain snapshot.db, for etcdutl",
		Args:  atMostOne("backup"),
	}
	cmd.Flags().StringVar(&to, "to", "", "the file to write; it must not exist")
	keys.add(cmd, a.getenv)
	plain.add(cmd)
	a.readFlags(cmd)
	a.store.transferFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.open(cmd.Context())
		if err != nil {
			return err
		}
		if to == "" {
			return usagef("no file: set --to, such as --to snapshot.db")
		}
		loaded, err := keys.load()
		if err != nil {
			return err
		}
		b, err := a.find(cmd, c, args)
		if err != nil {
			return err
		}
		taken, err := plain.take([]catalog.Backup{b}, keys)
		if len(taken) == 0 {
			return cmp.Or(err, errAllPlain)
		}
		report, done := a.progress()
		doc, err := download{cluster: c, backup: b, keys: loaded, report: report}.save(cmd.Context(), to)
		done()
		if err != nil {
			return err
		}
		if a.output == "json" {
			return a.json(document.Line{Result: doc})
		}
		a.printf("%s is backup %s: %s, sha256 %s\n", doc.File, doc.Backup, size(doc.Size), doc.SHA256)
		return nil
	}
	return cmd
}

// download describes the download of a backup.
type download struct {
	cluster *repository.Cluster
	backup  catalog.Backup
	keys    seal.Keys
	report  storage.Report
}

// save writes a temporary file in the directory of to, and then links it to the name to: a file of that name is always complete.
func (f download) save(ctx context.Context, to string) (document.Fetch, error) {
	b := f.backup
	_, err := os.Lstat(to)
	if !errors.Is(err, fs.ErrNotExist) {
		return document.Fetch{}, usagef("%s exists already: choose another name", to)
	}
	snapshot, err := f.cluster.Fetch(ctx, b, f.keys)
	if err != nil {
		return document.Fetch{}, err
	}
	defer snapshot.Close()
	temporary, err := os.CreateTemp(filepath.Dir(to), ".dr-fetch-*")
	if err != nil {
		return document.Fetch{}, err
	}
	defer os.Remove(temporary.Name())
	defer temporary.Close()
	event := storage.Event{Stage: "fetch", Message: "fetching the backup", Object: string(b.ID), Total: b.Plain.Size}
	_, err = io.Copy(temporary, f.report.Follow(snapshot, event))
	if err != nil {
		return document.Fetch{}, fmt.Errorf("fetch backup %s: %w", b.ID, err)
	}
	err = temporary.Sync()
	if err != nil {
		return document.Fetch{}, err
	}
	err = os.Link(temporary.Name(), to)
	if err != nil { // unlike a rename, a link never replaces a file
		return document.Fetch{}, err
	}
	return document.Fetch{Backup: b.ID, File: to, Size: b.Plain.Size, SHA256: b.Plain.SHA256, Key: snapshot.Key}, nil
}
