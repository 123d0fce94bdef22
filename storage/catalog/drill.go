package catalog

import (
	"slices"
	"time"
)

// Drill is what a proof holds if the backup was restored for practice, perhaps with the log behind it.
type Drill struct {
	// Target is what was restored, in words; Seed drew it, 0 if it was not drawn.
	Target string `json:"target"`
	Seed   uint64 `json:"seed,omitempty"`
	// Lineage, Position, NotBefore and NotAfter say where the target lies; all are absent for a backup alone.
	Lineage   string    `json:"lineage,omitempty"`
	Position  uint64    `json:"position,omitempty"` // 0: only the replay knows
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`

	Requests int    `json:"requests,omitempty"` // replayed onto the backup; from watch: revisions
	Replay   string `json:"replay,omitempty"`   // how the replay was compared with what the member had said, in words

	// RTO is how long it took until a server served what was restored; 0 if none did.
	RTO        float64     `json:"rtoSeconds,omitempty"`
	Steps      []Step      `json:"steps,omitempty"`
	Assertions []Assertion `json:"assertions,omitempty"` // those that were evaluated

	Blames Blame `json:"blames,omitempty"` // of a drill that failed
}

// Step is a part of a drill and how long it took.
type Step struct {
	Stage   string  `json:"stage"`
	Seconds float64 `json:"seconds"`
}

// Assertion is something that a person expects of what was restored.
type Assertion struct {
	Text  string `json:"text"` // as it was given
	Held  bool   `json:"held"`
	Found int64  `json:"found"` // how many keys there were
}

// Blame is where the fault lies that a drill found.
type Blame string

// What a drill can blame. Only BlameBackup is held against the backup: the other two say nothing of its own bytes.
const (
	BlameBackup    Blame = "backup"
	BlameLog       Blame = "log"       // what was replayed onto it
	BlameAssertion Blame = "assertion" // what was expected of it
)

// condemns reports whether p says that the backup itself is bad.
func (p Proof) condemns() bool {
	return p.Verdict == Failed && (p.Drill == nil || p.Drill.Blames == BlameBackup)
}

// spares reports whether p says nothing for or against the backup.
func (p Proof) spares() bool {
	return p.Verdict == NotRun || p.Verdict == Failed && !p.condemns()
}

// CoveredBy reports whether a later drill shows that what failed in p, a drill's proof, is mended: the assertions hold, the backup
// or a newer one restores, or a log was replayed through the same point or from a backup that was taken after p.
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

// replaysAll reports whether p replayed at least the part of the log that the failed drill did.
func (p Proof) replaysAll(failed Proof) bool {
	return p.Drill.Lineage == failed.Drill.Lineage && p.Backup <= failed.Backup &&
		p.Drill.Position >= failed.Drill.Position && !p.Drill.NotAfter.Before(failed.Drill.NotAfter)
}

// holds reports whether each of the assertions was evaluated, and held.
func (d Drill) holds(assertions []Assertion) bool {
	for _, a := range assertions {
		if !slices.ContainsFunc(d.Assertions, func(b Assertion) bool { return b.Text == a.Text && b.Held }) {
			return false
		}
	}
	return true
}

// LastDrill is the newest proof that came from a drill; not ok if there is none.
func (b Backup) LastDrill() (Proof, bool) {
	for _, p := range slices.Backward(b.Proofs) {
		if p.Drill != nil {
			return p, true
		}
	}
	return Proof{}, false
}
