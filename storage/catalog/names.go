// Package catalog describes the contents of a repository: backups with their proofs and pins, and the log with its lineages
// and segments. Its functions are pure. They map names to keys of objects, find the backups that a part of the log continues,
// and compute the windows of time that can be restored and the gaps between them. A Catalog holds all of this for one
// cluster.
//
// The packages backups, log and repository read and write the objects. Package catalog knows revisions, positions and bytes,
// and nothing about etcd's requests.
package catalog

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Errors of this package, to be matched with errors.Is.
var (
	// ErrNotFound means that the object is missing from the repository.
	ErrNotFound = fault.New(fault.NotFound, "not in the repository")
	// ErrDamaged means that an object is not as it was written.
	ErrDamaged = storage.ErrDamaged
	// ErrTaken means that another archiver has stored a segment under the same name. An error that matches it is, or
	// wraps, a *log.TakenError.
	ErrTaken = fault.New(fault.Busy, "another archiver was first")
	// ErrName means that the name of a cluster, backup, lineage or job is malformed.
	ErrName = fault.New(fault.Usage, "malformed name")
)

var clusterName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// ValidCluster returns nil if name is a valid cluster name: 1 to 100 letters, digits, dots, dashes and underscores,
// beginning with a letter or digit. Otherwise it returns an error that matches ErrName.
func ValidCluster(name string) error {
	if !clusterName.MatchString(name) {
		return fmt.Errorf("%w: cluster %q: use 1 to 100 letters, digits, '.', '_' and '-', starting with a letter or digit",
			ErrName, name)
	}
	return nil
}

// ID names one backup of a cluster. IDs sort by the time at which the backup began, in seconds, then by revision. They are
// names only: facts about a backup come from its manifest. The ID of an imported backup ends in "-import", so that a listing
// distinguishes it from the backups of the live cluster; see Origin.
type ID string

const (
	idTime       = "20060102T150405Z" // layout
	importSuffix = "-import"
)

// NewID returns the ID of a backup that began at the time started, truncated to the second, and contains revision or a
// later one.
func NewID(started time.Time, revision int64) ID {
	return ID(appendID(nil, started, revision))
}

// NewImportID is like NewID for a backup that was imported at that time.
func NewImportID(imported time.Time, revision int64) ID {
	return NewID(imported, revision) + importSuffix
}

func appendID(b []byte, started time.Time, revision int64) []byte {
	b = append(started.UTC().AppendFormat(b, idTime), '-')
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[revision>>shift&0xf])
	}
	return b
}

// ParseID returns text as an ID. It accepts only what NewID and NewImportID return; the error for anything else matches
// ErrName.
func ParseID(text string) (ID, error) {
	id, bare := ID(text), strings.TrimSuffix(text, importSuffix)
	var room [40]byte // on the stack: a listing parses the id of every backup
	started, revision, err := id.parts()
	if err != nil || string(appendID(room[:0], started, revision)) != bare {
		return "", fmt.Errorf("%w: backup %q: use an id like 20261121T092433Z-000000000000abcd", ErrName, text)
	}
	return id, nil
}

// IsImport reports whether id is that of an imported backup.
func (id ID) IsImport() bool { return strings.HasSuffix(string(id), importSuffix) }

// Later returns id with its time moved d later.
func (id ID) Later(d time.Duration) ID {
	later := NewID(id.Started().Add(d), id.Revision())
	if id.IsImport() {
		later += importSuffix
	}
	return later
}

// Revision returns the revision in the name, which the backup contains; 0 if id cannot be split into a time and a revision.
func (id ID) Revision() int64 {
	_, revision, _ := id.parts()
	return revision
}

// Started returns the time in the name, in whole seconds; zero if id cannot be split into a time and a
// revision.
func (id ID) Started() time.Time {
	started, _, _ := id.parts()
	return started
}

func (id ID) parts() (started time.Time, revision int64, err error) {
	stamp, hex, ok := strings.Cut(strings.TrimSuffix(string(id), importSuffix), "-")
	if !ok {
		return time.Time{}, 0, ErrName
	}
	started, err = time.Parse(idTime, stamp)
	if err != nil {
		return time.Time{}, 0, err
	}
	unsigned, err := strconv.ParseUint(hex, 16, 63)
	if err != nil {
		return time.Time{}, 0, err
	}
	return started, int64(unsigned), nil
}

// Names, and parts of names, of the objects of a backup and of the log.
const (
	SnapshotName    = "snapshot.db" // followed by the extensions of its seal
	ManifestName    = "manifest.json"
	ProofPrefix     = "proof-"
	TombstonePrefix = "tombstone-"
	IndexPrefix     = "index-" // of the log
	PackPrefix      = "pack-"  // of the log
	JSONSuffix      = ".json"
)

// BackupsPrefix returns the prefix of the keys of all backups of a cluster.
func BackupsPrefix(cluster string) string { return cluster + "/backups/" }

// Folder returns the prefix of the keys of a backup's objects.
func Folder(cluster string, id ID) string { return BackupsPrefix(cluster) + string(id) + "/" }

// BackupKey returns the key of a backup's object called name.
func BackupKey(cluster string, id ID, name string) string { return Folder(cluster, id) + name }

// ManifestKey returns the key of a backup's manifest.
func ManifestKey(cluster string, id ID) string { return BackupKey(cluster, id, ManifestName) }

// BackupsIndexKey returns the key of the index of a cluster's backups.
func BackupsIndexKey(cluster string) string { return cluster + "/backups-index.zst" }

// LogSummaryKey returns the key of the summary of a cluster's log.
func LogSummaryKey(cluster string) string { return cluster + "/log-summary.json" }

// RecentIndexKey returns the key of the index of the newest segments of a cluster's log.
func RecentIndexKey(cluster string) string { return cluster + "/log-recent.json" }

// SplitBackupKey returns the id and the name whose BackupKey is key. ok is false if key is not such a key.
func SplitBackupKey(cluster, key string) (id ID, name string, ok bool) {
	rest, ok := strings.CutPrefix(key, BackupsPrefix(cluster))
	if !ok {
		return "", "", false
	}
	folder, name, ok := strings.Cut(rest, "/")
	if !ok || strings.Contains(name, "/") {
		return "", "", false
	}
	id, err := ParseID(folder)
	return id, name, err == nil
}
