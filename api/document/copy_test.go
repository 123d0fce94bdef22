package document_test

import (
	"errors"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/imported"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// copyOf is one cluster that was copied, and not all of it.
func copyOf() document.Copy {
	return document.Copy{
		From: "file:///var/backups/etcd", To: "s3://bucket/etcd",
		Clusters: []document.CopiedCluster{
			{
				Cluster: "prod", Backups: 2, Segments: 7, Assets: 1, Objects: 12, Bytes: 7000, Present: 5, LeftOut: 3,
				Faults: []document.NotCopied{{Key: "prod/backups/x/snapshot.db.zst", Message: "damaged"}},
			},
			{Cluster: "test", Faults: []document.NotCopied{}},
		},
	}
}

// importOf has a source of each state.
func importOf() document.Import {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	source := func(name string) imported.Source {
		return imported.Source{Place: "/srv/" + name, Size: 7, Modified: at, Name: imported.ParseName(name)}
	}
	return document.NewImport([]imported.Outcome{
		{Source: source("etcd-snapshot-n1-1772600767"), State: imported.Stored, Backup: id + "-import", Revision: 4711, Written: at},
		{Source: source("etcd-snapshot-n1-1772600768"), State: imported.Present, Backup: id + "-import", Revision: 4711, Written: at},
		{Source: source("Incr-1-2-1772600767"), State: imported.Skipped, Written: at},
		{Source: source("notes"), State: imported.Failed, Written: at, Err: errors.New("damaged: /srv/notes")},
		{Source: source("snapshot.db"), State: imported.Planned, Written: at},
	})
}

// taken is a backup that one of two repositories has.
func taken() document.BackupResult {
	return document.BackupResult{
		Backup: document.NewBackup(catalog.Backup{Manifest: manifest()}),
		Stores: []document.BackupStore{
			{Repository: "file:///var/backups/etcd", Stored: true}, {Repository: "s3://bucket/etcd", Message: "it is away"},
		},
	}
}
