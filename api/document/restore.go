package document

import "github.com/etcd-dr/etcd-dr/storage/segment"

// Restore is the result of dr restore.
type Restore struct {
	PlanID    string           `json:"planID"`           // the id of the plan
	Backup    string           `json:"backup,omitempty"` // id of the restored backup
	File      string           `json:"file,omitempty"`   // the restored file
	Token     string           `json:"token"`            // the new cluster's initial-cluster-token
	ClusterID string           `json:"clusterID"`        // of the new cluster, in hex
	Members   []RestoredMember `json:"members"`          // the members that this host restored

	Replayed *Replayed `json:"replayed,omitempty"`      // the replayed log; absent if none was replayed
	Salvaged *Salvaged `json:"salvaged,omitempty"`      // the part from disks; absent without --from-data-dir
	Revision int64     `json:"revision"`                // of the restored key space, before any bump
	BumpedTo int64     `json:"bumpedTo,omitempty"`      // the revision from which it continues; absent if it continues at Revision
	Keys     int64     `json:"keys"`                    // in the restored key space
	HashKV   string    `json:"hashKV"`                  // "key space proven at revision N", or why it was not compared
	Key      string    `json:"key,omitempty"`           // fingerprint of the key that opened the backup
	Cleared  []string  `json:"clearedAlarms,omitempty"` // the alarms that the restore cleared
	Phases   []Phase   `json:"phases"`                  // in their order
}

// RestoredMember is the data dir of one member.
type RestoredMember struct {
	Name    string   `json:"name"`
	DataDir string   `json:"dataDir"` // its path
	Command []string `json:"command"` // starts the member; without TLS flags
}

// Phase is a stage of a restore and its duration.
type Phase struct {
	Stage   string  `json:"stage"` // as in an event
	Seconds float64 `json:"seconds"`
}

// Replayed describes the requests that were replayed onto a backup, or onto a disk's database.
type Replayed struct {
	Lineage  string         `json:"lineage,omitempty"` // of the archived log; absent if no request came from an archive
	Source   segment.Source `json:"source"`
	Segments int            `json:"segments"` // how many
	Requests int            `json:"requests"` // that the backup did not contain; with source "watch": revisions
	Position uint64         `json:"position"` // of the last request
	From     int64          `json:"from"`     // revision of the key space in the backup
	To       int64          `json:"to"`       // revision after the replay
	// Proven describes how the replay was compared with the member's own records, in words.
	Proven string `json:"proven"`
	// Unseen describes the changes that the log's source cannot see, in words; absent if it sees all.
	Unseen string `json:"unseen,omitempty"`
	// GuessedLeases is the number of leases in these segments whose time to live was unknown; absent if there are none.
	GuessedLeases int `json:"guessedLeases,omitempty"`
}

// Salvaged describes the part of the restored state that came from surviving disks.
type Salvaged struct {
	Disks    []string `json:"disks"`    // the data dirs that were used
	Position uint64   `json:"position"` // of the last request in the restored state
	Revision int64    `json:"revision"` // of the key space there
	Certain  int      `json:"certain"`  // requests from a disk's log that are known to be committed
	Probable int      `json:"probable"` // requests from a disk's log that may not have been committed
}

// Inspection is the document of dr status FILE: the content of a plain snapshot file, in the terms of etcdutl snapshot status.
type Inspection struct {
	File     string `json:"file"`              // its path
	Hash     string `json:"hash"`              // CRC-32C of all buckets, in hex
	Revision int64  `json:"revision"`          // of the key space
	Keys     int    `json:"keys"`              // without deleted keys
	Size     int64  `json:"size"`              // bytes of the database
	Index    uint64 `json:"index"`             // its place in the member's log
	Version  string `json:"version,omitempty"` // the storage version; absent before etcd 3.6
	Digest   bool   `json:"digest"`            // the file ends with its SHA-256, and that matches; false: it has none
}
