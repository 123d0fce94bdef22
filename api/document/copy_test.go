package document_test

import (
	"errors"

	"github.com/etcd-dr/etcd-dr/api/document"
	taking "github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// copyOf is one cluster that was copied, and not all of it.
func copyOf() document.Copy {
	d := document.Copy{From: "file:///var/backups/etcd", To: "s3://bucket/etcd"}
	d.Add("prod", repository.CopyResult{
		Backups: 2, Segments: 7, Objects: 12, Bytes: 7000, Present: 5, LeftOut: 3,
		Faults: []repository.CopyFault{{Key: "prod/backups/x/snapshot.db.zst", Err: errors.New("damaged")}},
	})
	d.Add("test", repository.CopyResult{})
	return d
}

// taken is a backup that one of two repositories has.
func taken() document.Taken {
	return document.NewTaken(taking.Result{
		Backup: catalog.Backup{Manifest: manifest()},
		Stores: []taking.Outcome{{Repository: "file:///var/backups/etcd"}, {Repository: "s3://bucket/etcd", Err: errors.New("it is away")}},
	})
}
