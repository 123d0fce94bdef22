package catalog

import (
	"slices"
	"time"
)

// Backup is one snapshot with its manifest, proofs and pins.
type Backup struct {
	Manifest
	Proofs []Proof `json:"proofs,omitempty"` // oldest first
	Pins   []Pin   `json:"pins,omitempty"`   // those neither lifted nor ended when the catalog was loaded, oldest first
}

// Best returns the highest level that b has passed, and the time of that proof. A later proof that b is bad, at that level or
// below, resets the level to "" and the time to its own. Without proofs Best returns Stored and the time when b was stored.
func (b Backup) Best() (Level, time.Time) {
	level, at := Stored, b.Finished
	if b.Origin != nil {
		at = b.Origin.Imported
	}
	for _, p := range b.Proofs {
		switch {
		case p.Verdict == Passed && p.Level.Rank() >= level.Rank():
			level, at = p.Level, p.Time
		case p.countsAgainst() && p.Level.Rank() <= level.Rank():
			level, at = "", p.Time
		}
	}
	return level, at
}

// Failed returns the newest proof that counts, and reports whether it shows that b is bad. A proof counts unless it was not
// run, or its drill blames something other than the backup.
func (b Backup) Failed() (Proof, bool) {
	for _, p := range slices.Backward(b.Proofs) {
		if !p.isInconclusive() {
			return p, p.countsAgainst()
		}
	}
	return Proof{}, false
}

// Decrypted reports whether b is not encrypted, or a proof shows that a key has opened it.
func (b Backup) Decrypted() bool {
	return b.Seal.Encryption == "" || slices.ContainsFunc(b.Proofs, func(p Proof) bool { return p.Key != "" })
}
