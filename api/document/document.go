// Package document defines the JSON that dr prints with -o json and that the API returns. Each document is one Go type. Fields may
// be added; none is renamed or removed, which golden tests check.
//
// docs/json.md and the API's OpenAPI document are generated from these types, the types that they contain, and the comments on both. A
// comment is therefore written for readers of JSON too. "X is …" above a field, or "X and Y are …" above the first of several, loses its
// subject there; Go names of fields become JSON names; and a zero value of a field that may be omitted is called absent.
//
// The package is pure: it converts values of pure packages itself, and package convert fills in the results of the others.
package document

import (
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Line is one line of a verb that prints while it works: events and items as they occur, then a result or an error.
type Line struct {
	Event  *storage.Event `json:"event,omitempty"`  // progress, a note or a warning
	Item   any            `json:"item,omitempty"`   // one finding of find, extract or diff
	Result any            `json:"result,omitempty"` // the document of the verb, on the last line of a verb that succeeded
	Error  *Error         `json:"error,omitempty"`  // on the last line of a verb that failed
}

// Error is the error of a verb that failed.
type Error struct {
	Message  string `json:"message"`  // the same line as on stderr
	ExitCode int    `json:"exitCode"` // docs/cli.md#exit-codes
}

// List is the document of dr list: the backups and the log of one cluster, or of all.
type List struct {
	Backups []Backup `json:"backups"` // by cluster, newest first, the imported ones after the others
	Damaged []Damage `json:"damaged"` // backups that cannot be used
	// Untrusted are backups that no trusted key has signed, and tombstones and pins that are ignored for that or another reason. The
	// list is empty without --trust.
	Untrusted []Damage `json:"untrusted"`
	Windows   []Window `json:"windows"` // by cluster, oldest first
	Gaps      []Gap    `json:"gaps"`    // by cluster, oldest first
}

// Backup is the document of dr show, and one backup of dr list: its manifest, and how far it was proven.
type Backup struct {
	catalog.Manifest
	Proven    catalog.Level   `json:"proven"`    // the highest level passed; empty if a later verify failed
	ProvenAt  time.Time       `json:"provenAt"`  // when it passed that level
	Decrypted bool            `json:"decrypted"` // a key has been shown to open it, or none is needed
	Proofs    []catalog.Proof `json:"proofs"`    // of each verify and each drill, oldest first
	Pins      []catalog.Pin   `json:"pins"`      // that protect it from pruning now
}

// Damage is a backup, or another object, that cannot be used.
type Damage struct {
	Cluster string     `json:"cluster"`
	ID      catalog.ID `json:"id"`
	Message string     `json:"message"` // the reason
}

// Damages returns the documents of a cluster's damages. The list is never nil.
func Damages(cluster string, damages []catalog.Damage) []Damage {
	all := []Damage{}
	for _, d := range damages {
		all = append(all, Damage{Cluster: cluster, ID: d.ID, Message: d.Err.Error()})
	}
	return all
}

// Leftovers is the document of dr list --leftovers.
type Leftovers struct {
	Leftovers []Leftover `json:"leftovers"` // objects of backups that were killed
}

// Leftover is an object of a backup that was killed.
type Leftover struct {
	Cluster string    `json:"cluster"`
	Key     string    `json:"key"`   // of the object
	Size    int64     `json:"size"`  // bytes
	Since   time.Time `json:"since"` // the last write to it, or the pruning of its backup if that is later
}

// Verify is the result of dr verify.
type Verify struct {
	Proofs []catalog.Proof `json:"proofs"` // one for each backup
}

// Fetch is the result of dr fetch.
type Fetch struct {
	Backup catalog.ID `json:"backup"`
	File   string     `json:"file"`          // its path
	Size   int64      `json:"size"`          // bytes
	SHA256 string     `json:"sha256"`        // 64 hex digits
	Key    string     `json:"key,omitempty"` // fingerprint of the key that opened it
}

// Plan is the document of dr restore --dry-run.
type Plan = plan.Plan

// Version is the document of dr version.
type Version struct {
	Version string `json:"version"` // of dr
	Go      string `json:"go"`      // the version of Go that built it
	Etcd    string `json:"etcd"`    // the version of the etcd libraries that dr restores with
}

// NewBackup returns the document of a backup. Its lists are never nil.
func NewBackup(b catalog.Backup) Backup {
	proven, at := b.Best()
	proofs := b.Proofs
	if proofs == nil {
		proofs = []catalog.Proof{}
	}
	pins := b.Pins
	if pins == nil {
		pins = []catalog.Pin{}
	}
	return Backup{Manifest: b.Manifest, Proven: proven, ProvenAt: at, Decrypted: b.Decrypted(), Proofs: proofs, Pins: pins}
}

// NewList returns an empty List. Its lists are not nil, because jq's .backups[] fails on null.
func NewList() List {
	return List{Backups: []Backup{}, Damaged: []Damage{}, Untrusted: []Damage{}, Windows: []Window{}, Gaps: []Gap{}}
}

// Add appends a cluster's catalog to l.
func (l *List) Add(c catalog.Catalog) {
	for _, b := range c.All() {
		l.Backups = append(l.Backups, NewBackup(b))
	}
	l.Damaged = append(l.Damaged, Damages(c.Cluster, c.Damaged)...)
	l.Untrusted = append(l.Untrusted, Damages(c.Cluster, slices.Concat(c.Untrusted, c.Ignored))...)
	l.Windows = append(l.Windows, Windows(c)...)
	l.Gaps = append(l.Gaps, Gaps(c)...)
}
