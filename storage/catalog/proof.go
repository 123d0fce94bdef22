package catalog

import (
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/document"
)

// Level is how far a backup has been proven: a rung of a ladder, each including the ones below.
type Level string

// The rungs, from the lowest.
const (
	Stored Level = "stored" // the manifest is whole and the object is there with its size
	Hashed Level = "hashed" // all bytes were read and their digests are right
	Opened Level = "opened" // the database was opened, every page checked, HashKV compared
	Booted Level = "booted" // an etcd server started on the restored data and answered with the same HashKV
)

// Levels are all rungs, from the lowest.
var Levels = []Level{Stored, Hashed, Opened, Booted}

// ParseLevel reads a rung's name.
func ParseLevel(text string) (Level, error) {
	for _, l := range Levels {
		if string(l) == text {
			return l, nil
		}
	}
	return "", fmt.Errorf("unknown level %q: use stored, hashed, opened or booted", text)
}

// Rank is the rung's place on the ladder, from 0; -1 for none.
func (l Level) Rank() int {
	for i, level := range Levels {
		if level == l {
			return i
		}
	}
	return -1
}

// Verdict is the outcome of a verify or a drill.
type Verdict string

// The verdicts. A check that could not be run is NotRun, never Passed.
const (
	Passed Verdict = "passed"
	Failed Verdict = "failed"
	NotRun Verdict = "not run"
)

// Proof is what one verify or drill found.
type Proof struct {
	Format   int       `json:"format"`
	Backup   ID        `json:"backup"`
	Level    Level     `json:"level"` // the rung that was asked for
	Verdict  Verdict   `json:"verdict"`
	Finding  string    `json:"finding"` // one plain sentence
	Time     time.Time `json:"time"`
	Seconds  float64   `json:"seconds"`            // how long it took
	Key      string    `json:"key,omitempty"`      // fingerprint of the key that opened it; "" if nothing was decrypted
	HashKV   string    `json:"hashKV,omitempty"`   // equal, or why it was not compared
	Revision int64     `json:"revision,omitempty"` // of the key space, as the opened database has it
	Keys     int64     `json:"keys,omitempty"`     // in it
	By       string    `json:"by"`                 // host and version of dr
	Drill    *Drill    `json:"drill,omitempty"`    // nil: a verify, and no drill
}

// Proofs are the stored proofs.
var Proofs = document.Kind[Proof]{Format: 1, Check: Proof.validate}

func (p Proof) validate() error {
	if p.Level.Rank() < 0 {
		return fmt.Errorf("proof of unknown level %q", p.Level)
	}
	if p.Verdict != Passed && p.Verdict != Failed && p.Verdict != NotRun {
		return fmt.Errorf("proof with unknown verdict %q", p.Verdict)
	}
	return nil
}
