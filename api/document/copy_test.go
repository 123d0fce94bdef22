package document_test

import (
	"errors"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/copying"
)

// copyOf is one cluster that was copied, and not all of it.
func copyOf() document.Copy {
	d := document.Copy{From: "file:///var/backups/etcd", To: "s3://bucket/etcd"}
	d.Add("prod", copying.Result{
		Backups: 2, Segments: 7, Objects: 12, Bytes: 7000, Present: 5, LeftOut: 3,
		Faults: []copying.Fault{{Key: "prod/backups/x/snapshot.db.zst", Err: errors.New("damaged")}},
	})
	d.Add("test", copying.Result{})
	return d
}

// taken is a backup that one of two repositories has.
func taken() document.Taken {
	return document.Taken{
		Backup: document.NewBackup(catalog.Backup{Manifest: manifest()}),
		Stores: []document.TakenStore{
			{Repository: "file:///var/backups/etcd", Stored: true}, {Repository: "s3://bucket/etcd", Message: "it is away"},
		},
	}
}
