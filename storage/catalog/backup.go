package catalog

import (
	"slices"
	"time"
)

// Backup is one snapshot with its manifest, proofs and pins.
type Backup struct {
	Manifest
	Proofs []Proof `json:"proofs,omitempty"` // oldest first
	Pins   []Pin   `json:"pins,omitempty"`   // that hold, oldest first
}

// Best is the highest rung that a backup has passed, and when. A later failure at or below that rung takes it away.
// Without any proof it is Stored, as of the backup's own end.
func (b Backup) Best() (Level, time.Time) {
	level, at := Stored, b.Finished
	for _, p := range b.Proofs {
		switch {
		case p.Verdict == Passed && p.Level.Rank() >= level.Rank():
			level, at = p.Level, p.Time
		case p.condemns() && p.Level.Rank() <= level.Rank():
			level, at = "", p.Time
		}
	}
	return level, at
}

// Failed is the newest proof, if it says that the backup is bad.
func (b Backup) Failed() (Proof, bool) {
	for _, p := range slices.Backward(b.Proofs) {
		if !p.spares() {
			return p, p.condemns()
		}
	}
	return Proof{}, false
}

// Decrypted reports whether a key has ever been shown to open the backup, or none is needed.
func (b Backup) Decrypted() bool {
	return b.Seal.Encryption == "" || slices.ContainsFunc(b.Proofs, func(p Proof) bool { return p.Key != "" })
}
