package document_test

import (
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

// taken is a backup that one of two repositories has.
func taken() document.BackupResult {
	return document.BackupResult{
		Backup: document.NewBackup(catalog.Backup{Manifest: manifest()}),
		Stores: []document.BackupStore{
			{Repository: "file:///var/backups/etcd", Stored: true}, {Repository: "s3://bucket/etcd", Message: "it is away"},
		},
	}
}
