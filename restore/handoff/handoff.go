// Package handoff takes a cluster from the Manager that runs it, restores it, and hands it back. Package statefulset implements a Manager.
//
//	Pending ─► Planning ─► Staging ─► Fencing ─► Sealing ─► Placing ─► Releasing ─► Verifying ─► Succeeded
//	   │           │          │          └──────────┴──────────┘           └────────────┘            │
//	   └───────────┴──────────┘           an error, or an order             only an order          only an order
//	               ▼                                │                            │                   │
//	            Refused                             └────────► RollingBack ◄─────┴───────────────────┘
//	       nothing was touched                                      │
//	                                                                ▼
//	                                                             Failed
//	                                                 the old data is in place again
//
// Staging builds the new data next to the old, which may still serve. Fencing stops all members. Sealing replaces each old data dir with a
// file on which etcd exits: an empty data dir would start a new, empty cluster. Placing replaces that file with the new data.
//
// In a rollback, a disk whose old data is lost gets such a file too. An empty member would keep its old identity, and its vote could elect
// a leader without writes that it had acknowledged before.
//
// Barriers keep two clusters from serving at the same time, even if another program starts members meanwhile: no data dir is sealed
// before all are staged, and none is placed before all are sealed. In a rollback no old data is put back before all new data is moved aside.
//
// Obey, Due, After and Rebuild are pure. A Record holds the progress of a restore. Its owner stores it after each step, before the first act of
// the next one; each act can be repeated. So a restore continues in another process after a kill at any moment.
package handoff

import (
	"github.com/etcd-dr/etcd-dr/restore/plan"
)

// Handoff describes the members of a cluster, and what their manager does with them. It is data: dry runs show it, and a Record stores it.
type Handoff struct {
	Manager   string    `json:"manager"`            // such as "StatefulSet payments/etcd"
	Members   []Member  `json:"members"`            // all of them, in the order of their names
	Endpoints []string  `json:"endpoints"`          // client URLs, through which the restored cluster is checked
	Acts      []Act     `json:"acts,omitempty"`     // that the restore will carry out on the manager, in their order
	Findings  []Finding `json:"findings,omitempty"` // that concern the restore
	Serves    bool      `json:"serves,omitempty"`   // the members had a leader before the restore: after a rollback they must have one again
	Stopped   bool      `json:"stopped,omitempty"`  // the manager ran no member before the restore, and runs none after a rollback
	Version   string    `json:"version,omitempty"`  // of etcd, by the tag of its image; "": unknown
	Quota     int64     `json:"quota,omitempty"`    // of a member's database, in bytes; 0: unknown, or none
	Held      bool      `json:"held,omitempty"`     // this restore has changed the manager's objects: it may have stopped members
	Saved     string    `json:"saved,omitempty"`    // the manager's own record of the values that Fence changes and Release puts back
}

// Member is one member with its place.
type Member struct {
	plan.Member
	DataDir string `json:"dataDir"`          // as the member's process sees it
	WALDir  string `json:"walDir,omitempty"` // "": in the data dir
	Disk    string `json:"disk"`             // where the data dir is: such as a claim's name
	Node    string `json:"node,omitempty"`   // on which the member runs, or ran last; "": unknown
	Fresh   bool   `json:"fresh,omitempty"`  // the disk does not exist yet, so it holds no data
	Away    bool   `json:"-"`                // of Restore.Verify: the check does not wait for the member
}

// Act is one change of the manager's objects.
type Act struct {
	Text string `json:"text"` // such as "scale to 0 and delete the pods"
	Verb string `json:"verb"` // the request, such as "patch statefulsets/scale payments/etcd"
}

// Finding is a fact that a person should know before the restore. If it refuses the restore, nothing is touched.
type Finding struct {
	Text    string `json:"text"`              // the fact
	Remedy  string `json:"remedy,omitempty"`  // absent if none is needed
	Refuses bool   `json:"refuses,omitempty"` // the restore is refused while it holds
}

// String returns the text with its remedy.
func (f Finding) String() string {
	if f.Remedy == "" {
		return f.Text
	}
	return f.Text + ": " + f.Remedy
}
