package catalog

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Manifest is the description of a backup. It is stored unencrypted, so it must never contain a secret: no URL with a password,
// no key or value of the key space.
type Manifest struct {
	Format  int    `json:"format"`
	ID      ID     `json:"id"` // its name in the repository
	Cluster string `json:"cluster"`

	Started   time.Time `json:"started"`   // before the snapshot was requested: the key space is of this time or later
	Finished  time.Time `json:"finished"`  // when the last byte of the snapshot was received
	DRVersion string    `json:"drVersion"` // the version of dr that took it

	ClusterID   string   `json:"clusterID"`   // 16 hex digits
	Member      Member   `json:"member"`      // the member that sent the snapshot
	Members     []Member `json:"members"`     // all members of the cluster, as Member listed them
	EtcdVersion string   `json:"etcdVersion"` // of Member

	Revision  int64  `json:"revision"`  // lower bound of the snapshot's revision
	RaftIndex uint64 `json:"raftIndex"` // lower bound of the snapshot's consistent index, its position in the log
	RaftTerm  uint64 `json:"raftTerm"`  // lower bound of the snapshot's term

	// RevisionMax and RaftIndexMax are upper bounds of the snapshot's revision and consistent index, read after the stream had begun.
	// They equal Revision and RaftIndex if nothing was written meanwhile. 0 if unknown.
	RevisionMax  int64  `json:"revisionMax,omitempty"`
	RaftIndexMax uint64 `json:"raftIndexMax,omitempty"`

	HashKV *HashKV `json:"hashKV,omitempty"` // of Member; nil if it was not requested or not available
	// HashSkipped is why HashKV was not requested: by an estimate it would stall Member for longer than --hash-max. "" if it was requested.
	HashSkipped string `json:"hashSkipped,omitempty"`

	// Entries is the number of entries of the key space that the snapshot's pages show. It is usually higher than that of the database, as
	// free pages still have their old ones. 0 if unknown.
	Entries int64 `json:"entries,omitempty"`
	InUse   int64 `json:"inUse,omitempty"` // bytes of the database without its free pages, before the stream; 0 if unknown

	Plain  Blob      `json:"plain"`  // snapshot.db as etcd sent it, with its trailing digest
	Stored Blob      `json:"stored"` // the sealed object
	Seal   seal.Seal `json:"seal"`   // how it was sealed

	Auth                bool     `json:"auth"`                // authentication is enabled
	Kubernetes          bool     `json:"kubernetes"`          // the key space has, or lately had, keys below /registry/
	KubernetesEncrypted bool     `json:"kubernetesEncrypted"` // its newest Secret is encrypted by the API server
	Alarms              []string `json:"alarms,omitempty"`    // "NOSPACE" or "CORRUPT", raised by any member
	NoQuorum            bool     `json:"noQuorum,omitempty"`  // taken while the cluster had no leader
	Compared            bool     `json:"compared,omitempty"`  // the key spaces of all members that responded were compared
	Diverged            string   `json:"diverged,omitempty"`  // how the members differ; "" if they do not or were not compared
	Labels              Labels   `json:"labels,omitempty"`    // names and values that the operator gave the backup

	// Origin is set only for an imported backup. Its ClusterID and Member are "" if the source does not name them,
	// its EtcdVersion is a minor version, its Started and Finished are Origin.Written, and its HashKV was computed when it was imported.
	Origin *Origin `json:"origin,omitempty"`
}

// Labels are names and values that the operator gives a backup.
type Labels map[string]string

// Member is one etcd server of the cluster.
type Member struct {
	ID         string   `json:"id"` // 16 hex digits
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs,omitempty"`
	ClientURLs []string `json:"clientURLs,omitempty"`
	Learner    bool     `json:"learner,omitempty"`
}

// Density is the number of entries of the key space in so many bytes in use. The zero Density is unknown.
type Density struct{ Entries, Bytes int64 }

// Density returns the density of the backup's database. It is rather too high than too low.
func (m Manifest) Density() Density {
	if m.Entries == 0 || m.InUse == 0 {
		return Density{}
	}
	return Density{m.Entries, m.InUse}
}

// HashKV is etcd's hash of the key space at Revision, compacted up to CompactRevision (Maintenance.HashKV). Hashes are
// comparable only at equal Revision and equal CompactRevision.
type HashKV struct {
	Revision        int64  `json:"revision"`
	CompactRevision int64  `json:"compactRevision"` // -1: never compacted
	Hash            uint32 `json:"hash"`            // as the member reports it
}

// Blob is the name, size and digest of a run of bytes.
type Blob struct {
	Name   string `json:"name"`   // of the object, without its folder, or of the plain file
	Size   int64  `json:"size"`   // bytes
	SHA256 string `json:"sha256"` // 64 hex digits
}

func (b Blob) validate() error {
	digest, err := hex.DecodeString(b.SHA256)
	if err != nil || len(digest) != 32 {
		return fmt.Errorf("sha256 %q is no digest", b.SHA256)
	}
	if b.Size <= 0 {
		return fmt.Errorf("size %d is not above zero", b.Size)
	}
	return nil
}

// Manifests reads and writes stored manifests.
var Manifests = document.Kind[Manifest]{Format: 1, Check: Manifest.Validate}

// validNames returns an error if a member's name or a label contains control characters: plans and lists print them to a
// terminal.
func (m Manifest) validNames() error {
	for _, member := range m.Members {
		if strings.ContainsFunc(member.Name, unicode.IsControl) {
			return fmt.Errorf("the member name %q holds control characters: rename the member", member.Name)
		}
	}
	for key, value := range m.Labels {
		if strings.ContainsFunc(key+value, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
			return fmt.Errorf("the label %q=%q holds control characters: leave them out", key, value)
		}
	}
	return nil
}

// Validate returns an error unless m is complete and consistent.
func (m Manifest) Validate() error {
	_, err := ParseID(string(m.ID))
	if err != nil {
		return err
	}
	err = ValidCluster(m.Cluster)
	if err != nil {
		return err
	}
	if m.Entries < 0 || m.InUse < 0 {
		return fmt.Errorf("%d entries in %d bytes", m.Entries, m.InUse)
	}
	if m.Revision < 1 {
		return fmt.Errorf("revision %d is below 1", m.Revision)
	}
	if m.RevisionMax != 0 && m.RevisionMax < m.Revision {
		return fmt.Errorf("revisionMax %d is below revision %d", m.RevisionMax, m.Revision)
	}
	if m.RaftIndexMax != 0 && m.RaftIndexMax < m.RaftIndex {
		return fmt.Errorf("raftIndexMax %d is below raftIndex %d", m.RaftIndexMax, m.RaftIndex)
	}
	err = m.validNames()
	if err != nil {
		return err
	}
	if m.Started.IsZero() || m.Finished.Before(m.Started) {
		return errors.New("it finished before it started")
	}
	err = m.Plain.validate()
	if err != nil {
		return fmt.Errorf("plain: %w", err)
	}
	err = m.Stored.validate()
	if err != nil {
		return fmt.Errorf("stored: %w", err)
	}
	err = m.validOrigin()
	if err != nil {
		return err
	}
	if m.Stored.Name != SnapshotName+m.Seal.Extension() {
		return fmt.Errorf("stored: name %q does not fit the seal", m.Stored.Name)
	}
	return m.Seal.Validate()
}
