package document_test

import (
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
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
	source := func(name string, state document.ImportState) document.ImportSource {
		return document.ImportSource{Source: "/srv/" + name, Size: 7, Written: at, State: state}
	}
	stored, skipped, failed := source("etcd-snapshot-n1-1772600767", document.ImportStored), source("Incr-1-2-1772600767", document.ImportSkipped),
		source("notes", document.ImportFailed)
	stored.Tool, stored.Backup, stored.Revision = "k3s", string(id)+"-import", 4711
	skipped.Tool, skipped.Why, failed.Why = "Gardener", "it is a delta: only full snapshots can be imported", "damaged: /srv/notes"
	present := stored
	present.State = document.ImportPresent
	return document.Import{Sources: []document.ImportSource{stored, present, skipped, failed, source("snapshot.db", document.ImportPlanned)}}
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

func converted() document.Convert {
	return document.Convert{Objects: []document.ConvertedObject{
		{
			From:        "EtcdBackup payments/etcd of etcd.database.coreos.com/v1beta2",
			Objects:     []map[string]any{{"apiVersion": "etcd-dr.io/v1alpha1", "kind": "EtcdBackup"}},
			Differences: []string{"The first backup is taken at once."},
		},
		{From: "Secret aws of v1", Objects: []map[string]any{}, Differences: []string{"It stays as it is."}},
	}}
}
