package handoff

import (
	"context"
	"fmt"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrForbidden is the error of a request that the manager's API forbids.
var ErrForbidden = fmt.Errorf("%w: grant the right, or see which rule of the cluster forbids it", fault.Denied)

// Manager runs the members of a cluster. Each method takes one step and returns. It can be repeated, also after a kill at any moment.
//
// A permanent error, which no repetition cures, matches fault.Refused, fault.Damaged, fault.NotFound, fault.Usage or fault.Denied. One that
// matches ErrForbidden may be temporary.
type Manager interface {
	// Inspect describes the target. It changes nothing, and reads live objects only.
	Inspect(ctx context.Context) (Handoff, error)
	// Fence takes one step towards stopping all members and keeping them stopped. It is done once that is proven.
	Fence(ctx context.Context, h Handoff) (Progress, error)
	// Do carries out a task on each member's disk. It returns the progress of each, in the order of h.Members. On the disks of the members
	// of r.Untouched, DoDiscard has nothing to do once no process of DoStage can start there any more.
	Do(ctx context.Context, r Record, t Task) ([]Progress, error)
	// Release takes one step towards the manager running all members.
	Release(ctx context.Context, h Handoff) (Progress, error)
	// Return takes one step towards making the manager's objects as Inspect found them.
	Return(ctx context.Context, h Handoff) (Progress, error)
	// Settled is done once the manager has run all members unchanged for a while.
	Settled(ctx context.Context, h Handoff) (Progress, error)
}

// Progress is the progress of one act, or of a task on one member's disk.
type Progress struct {
	Done    bool   `json:"done,omitempty"`
	Waiting string `json:"waiting,omitempty"` // why it is not done; "" if it is
	Stale   bool   `json:"stale,omitempty"`   // of DoSeal: the data dir is not the one for which the new data was built
	Met     *Met   `json:"-"`                 // of DoStage: the obstacle that stopped the plan; nil: none
	Built   *Built `json:"built,omitempty"`   // of DoStage: the new data, once it is done
	Vacant  bool   `json:"vacant,omitempty"`  // of DoStage and DoBack: there is no old data
	Idle    bool   `json:"idle,omitempty"`    // of DoStage and DoDiscard: no process of DoStage is known to have worked on the disk, and none can have without a trace
	Gone    bool   `json:"gone,omitempty"`    // the disk no longer exists, with all data on it; a task that only removes or puts back data is done
	Agreed  Agreed `json:"-"`                 // of Restore.Verify, once it is done
}

// Agreed is the state on which all members of a cluster agree. It is zero if they were not compared.
type Agreed struct {
	Revision int64  `json:"revision"` // of their key spaces
	HashKV   uint32 `json:"hashKV"`   // of each member, at that revision
}

// Built describes the new data of one member.
type Built struct {
	ClusterID string  `json:"clusterID"` // of the restored cluster, in hex
	Revision  int64   `json:"revision"`  // at which its members begin
	Keys      int64   `json:"keys"`
	Seconds   float64 `json:"seconds"` // that the build took
}

// Task is an act on one member's disk, by a process on its node.
type Task string

// The tasks. Package member carries them out.
const (
	DoLook     Task = "look"     // describe the disk; no step uses this task
	DoStage    Task = "stage"    // build the new data next to the old; if there is none, put a file there on which etcd exits
	DoSeal     Task = "seal"     // replace the old data dir with a file on which etcd exits
	DoPlace    Task = "place"    // replace that file with the new data
	DoReview   Task = "review"   // check that the old data can be put back
	DoWithdraw Task = "withdraw" // replace new data with a file on which etcd exits
	DoBack     Task = "back"     // put the old data back
	DoBlock    Task = "block"    // put a file on which etcd exits on each disk of Record.Lost, on a new disk if need be; it stays after the restore
	DoDiscard  Task = "discard"  // remove new data that was never in use
	DoClean    Task = "clean"    // remove the data that was moved aside
)
