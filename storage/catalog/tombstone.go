package catalog

import (
	"time"

	"github.com/etcd-dr/etcd-dr/storage/document"
)

// Tombstone marks a backup as deleted. It is an object of its own, so that a backup can be deleted while the store locks its
// objects: the backup is no longer listed, and its objects are removed after their locks end.
type Tombstone struct {
	Format     int       `json:"format"`
	Repository string    `json:"repository"` // the repository's id
	Backup     ID        `json:"backup"`
	Reason     string    `json:"reason"` // one plain sentence
	Time       time.Time `json:"time"`
	By         string    `json:"by"` // host and version of dr
}

// Tombstones reads and writes stored tombstones.
var Tombstones = document.Kind[Tombstone]{Format: 1, Check: Tombstone.validate}

func (t Tombstone) validate() error {
	_, err := ParseID(string(t.Backup))
	return err
}
