package catalog

import (
	"time"

	"github.com/etcd-dr/etcd-dr/storage/document"
)

// Pin is the protection of a backup from pruning, until the pin ends or is lifted. A Pin and an Unpin are stored as new objects and
// change none, so both work in a store that locks objects.
type Pin struct {
	Format int       `json:"format"`
	Backup ID        `json:"backup"`
	ID     string    `json:"pin"`    // its id: 16 hex digits, random
	Reason string    `json:"reason"` // one plain sentence, or ""
	Time   time.Time `json:"time"`   // when it was stored
	By     string    `json:"by"`     // host and version of dr
	// Until is the time at which the pin ends; zero if it ends only when it is lifted.
	Until time.Time `json:"until,omitzero"`
	// Confirms is set if a person has confirmed that the backup's history is the cluster's own, although that history did not begin
	// with a restore by dr.
	Confirms bool `json:"confirms,omitempty"`
}

// Unpin lifts one pin. Its fields differ from those of a Pin, so that an attacker cannot present a signed Pin as an Unpin.
type Unpin struct {
	Format     int       `json:"format"`
	Repository string    `json:"repository"` // the repository's id
	Backup     ID        `json:"backup"`
	Lifts      string    `json:"lifts"` // the id of the pin
	Time       time.Time `json:"time"`
	By         string    `json:"by"` // host and version of dr
}

// Pins and Unpins read and write stored pins and the documents that lift them.
var (
	Pins   = document.Kind[Pin]{Format: 1}
	Unpins = document.Kind[Unpin]{Format: 1}
)

// Ended reports whether p has ended at now. A pin without Until never ends.
func (p Pin) Ended(now time.Time) bool { return !p.Until.IsZero() && !now.Before(p.Until) }
