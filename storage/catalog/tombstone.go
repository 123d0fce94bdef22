package catalog

import (
	"time"

	"github.com/etcd-dr/etcd-dr/storage/document"
)

// Tombstone says that a backup is deleted. It is an object of its own, so that a backup whose objects are locked can be
// deleted too: it is listed no more, and its objects go when their lock has ended.
type Tombstone struct {
	Format     int       `json:"format"`
	Repository string    `json:"repository"` // the Marker's id
	Backup     ID        `json:"backup"`
	Reason     string    `json:"reason"` // one plain sentence
	Time       time.Time `json:"time"`
	By         string    `json:"by"` // host and version of dr
}

// Tombstones are the stored tombstones.
var Tombstones = document.Kind[Tombstone]{Format: 1, Check: Tombstone.validate}

func (t Tombstone) validate() error {
	_, err := ParseID(string(t.Backup))
	return err
}
