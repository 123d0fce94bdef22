// Package catalog holds the types that describe the contents of a repository (backups, their proofs and pins, the log and its
// lineages) and the pure functions on them: which keys objects have, which backups are bases of which part of the log, and
// which windows of time and gaps result. It does no I/O; packages repository and log read and write what it describes.
//
// It holds revisions, positions and bytes, and knows nothing of etcd's requests.
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
	// ErrNotFound: the repository does not hold what was asked for.
	ErrNotFound = fault.New(fault.NotFound, "not in the repository")
	// ErrDamaged: an object of the repository is not what was written.
	ErrDamaged = storage.ErrDamaged
	// ErrTaken: another archiver has stored a segment under that name. The error is a *TakenError.
	ErrTaken = fault.New(fault.Busy, "another archiver was first")
	// ErrName: a cluster's, backup's, lineage's or job's name is malformed.
	ErrName = fault.New(fault.Usage, "malformed name")
)

var clusterName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// ValidCluster returns an error that wraps ErrName unless name can be a cluster's name in a repository: 1 to 100
// letters, digits, dots, dashes and underscores, the first a letter or digit.
func ValidCluster(name string) error {
	if !clusterName.MatchString(name) {
		return fmt.Errorf("%w: cluster %q: use 1 to 100 letters, digits, '.', '_' and '-', starting with a letter or digit",
			ErrName, name)
	}
	return nil
}

// ID names one backup of a cluster. IDs sort by the second in which the backup began, then by revision; what is true
// of a backup is read from its manifest all the same, never from its name.
type ID string

const idTime = "20060102T150405Z"

// NewID names the backup that began at started, to the second, and holds at least revision.
func NewID(started time.Time, revision int64) ID {
	return ID(appendID(nil, started, revision))
}

func appendID(b []byte, started time.Time, revision int64) []byte {
	b = append(started.UTC().AppendFormat(b, idTime), '-')
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[revision>>shift&0xf])
	}
	return b
}

// ParseID checks that text is a backup's name.
func ParseID(text string) (ID, error) {
	id := ID(text)
	var room [40]byte // a listing asks that of every backup of a fleet
	if started, revision, err := id.parts(); err != nil || revision < 0 || string(appendID(room[:0], started, revision)) != text {
		return "", fmt.Errorf("%w: backup %q: use an id like 20261121T092433Z-000000000000abcd", ErrName, text)
	}
	return id, nil
}

// Revision is that in the name: the backup holds at least so much.
func (id ID) Revision() int64 {
	_, hex, _ := strings.Cut(string(id), "-")
	revision, _ := strconv.ParseInt(hex, 16, 64)
	return revision
}

// Started is the time in the name, to the second.
func (id ID) Started() time.Time {
	started, _, _ := id.parts()
	return started
}

func (id ID) parts() (started time.Time, revision int64, err error) {
	stamp, hex, ok := strings.Cut(string(id), "-")
	if !ok {
		return time.Time{}, 0, ErrName
	}
	if started, err = time.Parse(idTime, stamp); err != nil {
		return time.Time{}, 0, err
	}
	revision, err = strconv.ParseInt(hex, 16, 64)
	return started, revision, err
}

// The names of a backup's objects.
const (
	SnapshotName    = "snapshot.db" // before the extensions of its seal
	ManifestName    = "manifest.json"
	ProofPrefix     = "proof-"
	TombstonePrefix = "tombstone-"
	IndexPrefix     = "index-" // of the log
	JSONSuffix      = ".json"
)

// BackupsPrefix returns the prefix of the keys of all backups of a cluster.
func BackupsPrefix(cluster string) string { return cluster + "/backups/" }

// Folder returns the prefix of the keys of one backup's objects.
func Folder(cluster string, id ID) string { return BackupsPrefix(cluster) + string(id) + "/" }

// BackupKey returns the key of one of a backup's objects.
func BackupKey(cluster string, id ID, name string) string { return Folder(cluster, id) + name }

// ManifestKey returns the key of a backup's manifest.
func ManifestKey(cluster string, id ID) string { return BackupKey(cluster, id, ManifestName) }

// SplitBackupKey returns the parts of a BackupKey. It is not ok for any other key.
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
