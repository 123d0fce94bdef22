// Package document defines the JSON that dr prints with -o json and that the API returns. Each document is one Go type. Fields may
// be added; none is renamed or removed, which golden tests check. docs/json.md describes every
// field. It is written by hand, since fields are best explained in groups; a test compares it with the golden files in both directions.
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

// Line is one line of a verb that prints while it works: events and items as they come, then a result or an error.
type Line struct {
	Event  *storage.Event `json:"event,omitempty"`
	Item   any            `json:"item,omitempty"` // one finding of find, extract or diff
	Result any            `json:"result,omitempty"`
	Error  *Error         `json:"error,omitempty"`
}

// Error is the error of a verb that failed.
type Error struct {
	Message  string `json:"message"`
	ExitCode int    `json:"exitCode"`
}

// List is dr list.
type List struct {
	Backups []Backup `json:"backups"` // by cluster, newest first, the imported ones after the others
	Damaged []Damage `json:"damaged"`
	// Untrusted are backups that no trusted key has signed, and tombstones and pins that are ignored for that or another reason.
	Untrusted []Damage `json:"untrusted"`
	Windows   []Window `json:"windows"` // by cluster, oldest first
	Gaps      []Gap    `json:"gaps"`    // by cluster, oldest first
}

// Backup is one backup in List, and dr show.
type Backup struct {
	catalog.Manifest
	Proven    catalog.Level   `json:"proven"` // the highest level passed, "" if a later verify failed
	ProvenAt  time.Time       `json:"provenAt"`
	Decrypted bool            `json:"decrypted"` // a key has been shown to open it, or none is needed
	Proofs    []catalog.Proof `json:"proofs"`
	Pins      []catalog.Pin   `json:"pins"` // that protect it from pruning
}

// Damage is a backup that cannot be used.
type Damage struct {
	Cluster string     `json:"cluster"`
	ID      catalog.ID `json:"id"`
	Message string     `json:"message"`
}

// Leftovers is dr list --leftovers.
type Leftovers struct {
	Leftovers []Leftover `json:"leftovers"`
}

// Leftover is an object of a backup that was killed.
type Leftover struct {
	Cluster string    `json:"cluster"`
	Key     string    `json:"key"`
	Size    int64     `json:"size"` // bytes
	Since   time.Time `json:"since"`
}

// Verify is dr verify.
type Verify struct {
	Proofs []catalog.Proof `json:"proofs"`
}

// Fetch is dr fetch.
type Fetch struct {
	Backup catalog.ID `json:"backup"`
	File   string     `json:"file"`
	Size   int64      `json:"size"` // bytes
	SHA256 string     `json:"sha256"`
	Key    string     `json:"key,omitempty"` // fingerprint of the key that opened it
}

// Plan is dr restore --dry-run.
type Plan = plan.Plan

// Version is dr version.
type Version struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	Etcd    string `json:"etcd"` // of the libraries that restore
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
	for _, d := range c.Damaged {
		l.Damaged = append(l.Damaged, Damage{c.Cluster, d.ID, d.Err.Error()})
	}
	for _, d := range slices.Concat(c.Untrusted, c.Ignored) {
		l.Untrusted = append(l.Untrusted, Damage{c.Cluster, d.ID, d.Err.Error()})
	}
	l.Windows = append(l.Windows, Windows(c)...)
	l.Gaps = append(l.Gaps, Gaps(c)...)
}
