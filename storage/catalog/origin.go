package catalog

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Origin is where an imported backup came from: a file, or the disks of stopped members. Such a backup is no part of the
// history that the cluster's own backups and its log form. A restore finds it only by its ID, and replays nothing onto it.
// Schedules, retention, drills and conditions do not count it.
type Origin struct {
	Kind     OriginKind `json:"kind"`
	Imported time.Time  `json:"imported"` // when it was stored
	// Written is when the data was last written. It comes from the operator if Given is set; else from the name of the file if that has a
	// time, or from the latest time of the files.
	Written time.Time `json:"written"`
	Given   bool      `json:"given,omitempty"` // the operator gave Written

	File string `json:"file,omitempty"` // the path or URL of the imported file
	// Size and Modified are those of the file. They tell whether it was imported before.
	Size     int64     `json:"size,omitempty"` // bytes
	Modified time.Time `json:"modified,omitzero"`
	// Unhashed is set if the file did not end with the digest that etcdctl appends. The digest in the backup was computed when
	// it was imported, and does not prove that the file was complete.
	Unhashed bool `json:"unhashed,omitempty"`

	Salvage *Salvage `json:"salvage,omitempty"` // how certain the content is; nil for a file
}

// OriginKind is the kind of source of an imported backup.
type OriginKind string

// The kinds of origins.
const (
	OriginFile    OriginKind = "file"    // a snapshot file, or a copy of a member's database
	OriginSalvage OriginKind = "salvage" // data dirs of stopped members
)

// Salvage describes how certain the content of a salvaged backup is.
type Salvage struct {
	Disks    []SalvagedDisk `json:"disks"`    // the data dirs of stopped members
	Voters   int            `json:"voters"`   // of the cluster; 0: unknown
	Majority bool           `json:"majority"` // the logs of more than half of the voters were read, so no acknowledged write is missing
	// Certain is the revision up to which everything is known to be committed. The entries after it are probable: the last
	// acknowledged requests, and perhaps some that were never committed. It is the backup's revision if no entries follow.
	Certain  int64 `json:"certainRevision"`
	Probable int   `json:"probableRequests"` // requests after Certain in the backup
	LeftOut  int   `json:"leftOutRequests"`  // requests at the end of the logs that are not in the backup
	// Most is an upper bound for the last revision on the disks. Clients may have seen it.
	Most int64 `json:"mostRevision"`
}

// SalvagedDisk is the data dir of a stopped member.
type SalvagedDisk struct {
	Dir    string `json:"dir"`
	Member string `json:"member,omitempty"` // id in hex; absent if unknown
	Name   string `json:"name,omitempty"`   // absent if unknown
	Used   bool   `json:"used"`             // the backup contains data from it; false: it was only compared
}

// String returns a sentence: the source of the backup, and which part of its content is uncertain.
func (o Origin) String() string {
	if o.Salvage == nil {
		text := fmt.Sprintf("imported from the file %s", o.File)
		if o.Unhashed {
			text += ", which did not end with a digest: nothing shows that it was complete"
		}
		return text
	}
	return o.Salvage.String()
}

// String returns a sentence that describes how certain the content is.
func (s Salvage) String() string {
	text := fmt.Sprintf("salvaged from %d disks", len(s.Disks))
	if s.Voters > 0 {
		text = fmt.Sprintf("salvaged from the disks of %d of %d members", len(s.Disks), s.Voters)
	}
	text += fmt.Sprintf(": certain up to revision %d", s.Certain)
	switch {
	case s.Probable > 0 && s.Majority:
		text += fmt.Sprintf("; the last %d requests are probable: every acknowledged write is among them, and perhaps some that were never committed", s.Probable)
	case s.Probable > 0:
		text += fmt.Sprintf("; the last %d requests are probable: some may never have been committed", s.Probable)
	}
	if !s.Majority {
		text += "; writes that only the missing members had are lost"
	}
	if s.LeftOut > 0 {
		text += fmt.Sprintf("; %d requests at the end of the logs were left out because nothing showed whether they were committed", s.LeftOut)
	}
	return text
}

// validOrigin returns an error unless m's ID and Origin agree, and Origin is complete.
func (m Manifest) validOrigin() error {
	o := m.Origin
	if (o != nil) != m.ID.IsImport() {
		return fmt.Errorf("the id %s and the origin do not agree about whether it is an imported backup", m.ID)
	}
	if o == nil {
		return nil
	}
	known := o.Kind == OriginFile && o.Salvage == nil || o.Kind == OriginSalvage && o.Salvage != nil
	switch {
	case !known:
		return fmt.Errorf("origin %q is unknown to this version of dr, or incomplete", o.Kind)
	case o.Imported.IsZero() || o.Written.IsZero():
		return errors.New("origin: it has no time")
	}
	names := []string{o.File}
	if o.Salvage != nil {
		for _, d := range o.Salvage.Disks {
			names = append(names, d.Dir, d.Name)
		}
	}
	for _, name := range names {
		if strings.ContainsFunc(name, unicode.IsControl) {
			return fmt.Errorf("origin: the name %q holds control characters: rename it", name)
		}
	}
	return nil
}
