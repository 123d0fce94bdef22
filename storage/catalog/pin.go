package catalog

import (
	"time"

	"github.com/etcd-dr/etcd-dr/storage/document"
)

// Pin keeps a backup from being pruned until it ends or is lifted. Like all state it is an object of its own, and so is what lifts
// it: both work where objects are locked.
type Pin struct {
	Format int       `json:"format"`
	Backup ID        `json:"backup"`
	ID     string    `json:"pin"`    // 16 hex digits, random
	Reason string    `json:"reason"` // one plain sentence, "" if nobody gave one
	Time   time.Time `json:"time"`
	By     string    `json:"by"` // host and version of dr
	// Until is when the pin ends, and counts no more; zero: it holds until it is lifted.
	Until time.Time `json:"until,omitzero"`
	// Confirms: a person has confirmed that the backup's history is the cluster's own, though no restore by dr began it.
	Confirms bool `json:"confirms,omitempty"`
}

// Unpin lifts one pin. Its fields are other ones than a Pin's, so that nobody makes one of a signed pin.
type Unpin struct {
	Format     int       `json:"format"`
	Repository string    `json:"repository"` // the Marker's id
	Backup     ID        `json:"backup"`
	Lifts      string    `json:"lifts"` // the pin's id
	Time       time.Time `json:"time"`
	By         string    `json:"by"` // host and version of dr
}

// Pins are the stored pins, Unpins the documents that lift them.
var (
	Pins   = document.Kind[Pin]{Format: 1}
	Unpins = document.Kind[Unpin]{Format: 1}
)

// ended reports whether p counts no more.
func (p Pin) Ended(now time.Time) bool { return !p.Until.IsZero() && !now.Before(p.Until) }
