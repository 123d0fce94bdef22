package catalog

import (
	"slices"
	"time"
)

// Drill is the part of a proof that a drill adds: it restored the backup for practice, with or without the log after it.
type Drill struct {
	Target string `json:"target"`          // the restored point in words
	Seed   uint64 `json:"seed,omitempty"`  // the number from which Target was drawn; 0 if it was not drawn at random
	Part   int    `json:"part,omitempty"`  // the number of this restore among those of its drill, from 1
	Parts  int    `json:"parts,omitempty"` // the number of restores of its drill. If the last one has no proof, the drill was interrupted or is still running
	// Lineage, Position, NotBefore and NotAfter are the place of the target in the log. Zero if only the backup was restored. Position
	// is also zero if only the replay can find it.
	Lineage   string    `json:"lineage,omitempty"`
	Position  uint64    `json:"position,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`

	Requests int    `json:"requests,omitempty"` // number of requests replayed onto the backup; of revisions if the log is from a watch
	Replay   string `json:"replay,omitempty"`   // how the replay was compared with the member's reports, in words

	// RTO is the time until a server served the restored data, in seconds; 0 if none did, or if it served something else.
	RTO        float64     `json:"rtoSeconds,omitempty"`
	Steps      []Step      `json:"steps,omitempty"`      // its parts; nil if RTO is 0
	Assertions []Assertion `json:"assertions,omitempty"` // only those that were evaluated

	Blames Blame `json:"blames,omitempty"` // the cause; "" unless the drill failed. Only "backup" counts against the backup
}

// Step is a part of a drill and its duration.
type Step struct {
	Stage   string  `json:"stage"` // as in an event
	Seconds float64 `json:"seconds"`
}

// Assertion is an expectation of the restored data and its outcome.
type Assertion struct {
	Text  string `json:"text"`  // as the operator wrote it
	Held  bool   `json:"held"`  // the data is as expected
	Found int64  `json:"found"` // the number of keys
}

// Blame is the cause of a drill's failure.
type Blame string

// The causes of a failed drill. Only BlameBackup counts against the backup.
const (
	BlameBackup    Blame = "backup"
	BlameLog       Blame = "log"       // the replayed part of the log
	BlameAssertion Blame = "assertion" // an expectation of the restored data
)

// countsAgainst reports whether p shows that the backup itself is bad.
func (p Proof) countsAgainst() bool {
	return p.Verdict == Failed && (p.Drill == nil || p.Drill.Blames == BlameBackup)
}

// isInconclusive reports whether p shows nothing for or against the backup.
func (p Proof) isInconclusive() bool {
	return p.Verdict == NotRun || p.Verdict == Failed && !p.countsAgainst()
}

// CoveredBy reports whether later, a proof made after p, shows that the fault found by p is gone. p must be the proof of a
// failed drill. A later drill covers failed assertions if it evaluated all of them and they held. It covers a bad log if it
// replayed at least the same part, or replayed requests onto a backup that was taken after p. It covers a bad backup if it
// restored that backup or a newer one.
func (p Proof) CoveredBy(later Proof) bool {
	if later.Drill == nil || later.Verdict != Passed {
		return false
	}
	switch p.Drill.Blames {
	case BlameAssertion:
		return later.Drill.holds(p.Drill.Assertions)
	case BlameLog:
		return later.Drill.Requests > 0 && (later.Backup.Started().After(p.Time) || later.replaysAll(p))
	}
	return later.Backup >= p.Backup
}

// replaysAll reports whether p's drill replayed at least the part of the log that the failed drill replayed.
func (p Proof) replaysAll(failed Proof) bool {
	return p.Drill.Lineage == failed.Drill.Lineage && p.Backup <= failed.Backup &&
		p.Drill.Position >= failed.Drill.Position && !p.Drill.NotAfter.Before(failed.Drill.NotAfter)
}

// holds reports whether d evaluated each of the assertions and all of them held.
func (d Drill) holds(assertions []Assertion) bool {
	for _, a := range assertions {
		if !slices.ContainsFunc(d.Assertions, func(b Assertion) bool { return b.Text == a.Text && b.Held }) {
			return false
		}
	}
	return true
}

// DrillEnded reports whether proofs, those of one drill, contain that of its last part.
func DrillEnded(proofs []Proof) bool {
	return slices.ContainsFunc(proofs, func(p Proof) bool { return p.Drill.Part == p.Drill.Parts })
}

// LastDrill returns the newest proof that a drill made. It is not ok if there is none.
func (b Backup) LastDrill() (Proof, bool) {
	for _, p := range slices.Backward(b.Proofs) {
		if p.Drill != nil {
			return p, true
		}
	}
	return Proof{}, false
}
