package document

import "github.com/etcd-dr/etcd-dr/storage/segment"

// Restore is dr restore.
type Restore struct {
	PlanID    string           `json:"planID"`
	Backup    string           `json:"backup,omitempty"` // its id
	File      string           `json:"file,omitempty"`
	Token     string           `json:"token"`
	ClusterID string           `json:"clusterID"` // of the restored cluster, in hex
	Members   []RestoredMember `json:"members"`

	Replayed *Replayed `json:"replayed,omitempty"` // the log's part
	Salvaged *Salvaged `json:"salvaged,omitempty"` // the surviving disks' part
	Revision int64     `json:"revision"`           // of the key space that was restored, before any bump
	BumpedTo int64     `json:"bumpedTo,omitempty"` // the revision after the bump
	Keys     int64     `json:"keys"`
	HashKV   string    `json:"hashKV"`        // whether it was proven, in words
	Key      string    `json:"key,omitempty"` // fingerprint of the key that opened the backup
	Cleared  []string  `json:"clearedAlarms,omitempty"`
	Phases   []Phase   `json:"phases"`
}

// RestoredMember is the data dir of one member.
type RestoredMember struct {
	Name    string   `json:"name"`
	DataDir string   `json:"dataDir"`
	Command []string `json:"command"` // starts the member; without TLS flags
}

// Phase is a stage of a restore and its duration.
type Phase struct {
	Stage   string  `json:"stage"`
	Seconds float64 `json:"seconds"`
}

// Replayed describes the requests that were replayed onto a backup, or onto a disk's database.
type Replayed struct {
	Lineage  string         `json:"lineage,omitempty"` // absent if none of them came from an archive
	Source   segment.Source `json:"source"`
	Segments int            `json:"segments"`
	Requests int            `json:"requests"` // that the backup did not contain; from watch: revisions
	Position uint64         `json:"position"` // of the last one
	From     int64          `json:"from"`     // revision of the key space in the backup
	To       int64          `json:"to"`       // revision after the replay
	// Proven describes how the replay was compared with the member's own records, in words.
	Proven string `json:"proven"`
	// Unseen describes the changes that the log's source cannot see; absent if it sees all.
	Unseen string `json:"unseen,omitempty"`
	// GuessedLeases counts the leases of these segments whose time to live was unknown.
	GuessedLeases int `json:"guessedLeases,omitempty"`
}

// Salvaged describes the part of the restored state that came from surviving disks.
type Salvaged struct {
	Disks    []string `json:"disks"`    // the data dirs that were used
	Position uint64   `json:"position"` // of the last request in the restored state
	Revision int64    `json:"revision"` // of the key space there
	Certain  int      `json:"certain"`  // requests from a disk's log that were surely committed
	Probable int      `json:"probable"` // requests from a disk's log that may not have been committed
}

// Inspection is dr status FILE: the content of a plain snapshot file, in the terms of etcdutl snapshot status.
type Inspection struct {
	File     string `json:"file"`
	Hash     string `json:"hash"`              // CRC-32C of all buckets, in hex
	Revision int64  `json:"revision"`          // of the key space
	Keys     int    `json:"keys"`              // without deleted ones
	Size     int64  `json:"size"`              // bytes of the database
	Index    uint64 `json:"index"`             // its place in the member's log
	Version  string `json:"version,omitempty"` // of the storage, since etcd 3.6
	Digest   bool   `json:"digest"`            // a SHA-256 at the end matches; false: there is none
}
