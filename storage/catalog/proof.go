package catalog

import (
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/document"
)

// Level is the depth of a check. Each level includes the ones below it.
type Level string

// The levels, lowest first.
const (
	Stored Level = "stored" // the manifest is valid and the object exists with its size
	Hashed Level = "hashed" // all bytes were read and match their digests
	Opened Level = "opened" // the database was opened, every page checked and HashKV compared
	Booted Level = "booted" // an etcd server started on the restored data and returned the same HashKV
)

// Levels are all levels, lowest first.
var Levels = []Level{Stored, Hashed, Opened, Booted}

// ParseLevel returns the level called text, or an error if there is none.
func ParseLevel(text string) (Level, error) {
	for _, l := range Levels {
		if string(l) == text {
			return l, nil
		}
	}
	return "", fmt.Errorf("unknown level %q: use stored, hashed, opened or booted", text)
}

// Rank returns the index of l in Levels; -1 if l is not a level.
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

// Proof is the result of a verify or a drill of one backup.
type Proof struct {
	Format   int       `json:"format"`
	Backup   ID        `json:"backup"` // its id
	Level    Level     `json:"level"`  // the level that was requested
	Verdict  Verdict   `json:"verdict"`
	Finding  string    `json:"finding"`            // one plain sentence
	Time     time.Time `json:"time"`               // when it ended
	Seconds  float64   `json:"seconds"`            // the duration
	Key      string    `json:"key,omitempty"`      // fingerprint of the key that opened the backup; "" if nothing was decrypted
	HashKV   string    `json:"hashKV,omitempty"`   // "key space proven at revision N", or why it was not compared
	Revision int64     `json:"revision,omitempty"` // of the key space in the opened database
	Keys     int64     `json:"keys,omitempty"`     // number of keys in the opened database
	By       string    `json:"by"`                 // host and version of dr
	Drill    *Drill    `json:"drill,omitempty"`    // of a drill; nil for a verify
}

// Proofs reads and writes stored proofs.
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
