package document

import (
	"fmt"
	"strings"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/plan"
)

// IntoPlan is the document of dr restore --into --dry-run.
type IntoPlan struct {
	ID       string            `json:"id"`       // of the restore that the same command begins without --dry-run
	Target   string            `json:"target"`   // such as "StatefulSet payments/etcd"
	Members  []IntoMember      `json:"members"`  // all of the restored cluster
	Acts     []handoff.Act     `json:"acts"`     // the changes of the target, in their order
	Findings []handoff.Finding `json:"findings"` // facts about the target that a person should know before the restore
	Plan     Plan              `json:"plan"`     // how the data is restored
}

// IntoMember is a member with its disk.
type IntoMember struct {
	Name string `json:"name"`
	Disk string `json:"disk"`           // such as the name of a claim
	Node string `json:"node,omitempty"` // on which it runs, or ran last; absent if unknown
}

// Into is the result of dr restore --into, also with --undo, --clean, --fence-only or --unfence.
type Into struct {
	ID     string    `json:"id,omitempty"` // of the restore, for --undo and --clean; absent with --fence-only and --unfence
	Target string    `json:"target"`       // such as "StatefulSet payments/etcd"
	State  IntoState `json:"state"`
	// Why is the reason why the restore was refused or rolled back, with the members whose old data is lost; absent if there is none.
	Why    string `json:"why,omitempty"`
	PlanID string `json:"planID,omitempty"` // absent if there was no plan yet
	Backup string `json:"backup,omitempty"` // id of the backup

	// Without contains the names of the members whose hosts were left out: they might not serve the restored data yet.
	Without []string `json:"without,omitempty"`

	ClusterID    string  `json:"clusterID,omitempty"`    // of the restored cluster, in hex
	Revision     int64   `json:"revision,omitempty"`     // from which it continues
	Keys         int64   `json:"keys,omitempty"`         // in the restored key space
	HashKV       string  `json:"hashKV,omitempty"`       // of each member, 8 hex digits; absent if the versions of etcd differ
	HashRevision int64   `json:"hashRevision,omitempty"` // at which the members were compared
	Downtime     float64 `json:"downtime,omitempty"`     // seconds from the beginning of fencing until the members were found to serve; absent: no member was stopped, or they do not serve yet

	Obstacles []string `json:"obstacles,omitempty"` // damage in the repository that the restore has avoided
	Phases    []Phase  `json:"phases"`              // in their order
	Undo      []string `json:"undo,omitempty"`      // the command that puts the old data back
	Clean     []string `json:"clean,omitempty"`     // the command that removes the data that was moved aside
}

// IntoState is the state of the target after dr restore --into.
type IntoState string

// The states.
const (
	IntoRestored IntoState = "restored" // the members serve the restored data
	IntoUndone   IntoState = "undone"   // the old data is in place again
	IntoStopped  IntoState = "stopped"  // all members stay stopped: so many have lost their old data that the others are no quorum
	IntoRefused  IntoState = "refused"  // no member was touched
	IntoRemoved  IntoState = "removed"  // the data that was moved aside is removed
	IntoFenced   IntoState = "fenced"   // the member on this host is stopped, and stays so until the restore or, under systemd, a reboot; no data was changed
	IntoUnfenced IntoState = "unfenced" // the member on this host was started again; no data was changed
)

// NewIntoPlan returns the document of a dry run. Its lists are never nil.
func NewIntoPlan(id string, p plan.Plan, h handoff.Handoff) IntoPlan {
	d := IntoPlan{ID: id, Target: h.Manager, Plan: p, Members: []IntoMember{}}
	for _, m := range h.Members {
		d.Members = append(d.Members, IntoMember{Name: m.Name, Disk: m.Disk, Node: m.Node})
	}
	d.Acts = append([]handoff.Act{}, h.Acts...)
	d.Findings = append([]handoff.Finding{}, h.Findings...)
	return d
}

// NewInto returns the document of a restore that has ended.
func NewInto(r handoff.Record) Into {
	d := Into{ID: r.ID, Target: r.Handoff.Manager, State: intoState(r), Why: r.Reason, Phases: phasesOf(r)}
	if r.Plan != nil {
		d.PlanID = r.Plan.ID
	}
	if r.Plan != nil && r.Plan.Backup != nil {
		d.Backup = string(r.Plan.Backup.ID)
	}
	for _, m := range r.Met {
		d.Obstacles = append(d.Obstacles, m.Error.Message)
	}
	if r.Served.After(r.Down) {
		d.Downtime = r.Served.Sub(r.Down).Seconds()
	}
	if d.State != IntoRestored {
		return d
	}
	d.ClusterID, d.Revision, d.Keys = r.Built.ClusterID, r.Built.Revision, r.Built.Keys
	if r.Agreed != (handoff.Agreed{}) {
		d.HashKV, d.HashRevision = fmt.Sprintf("%08x", r.Agreed.HashKV), r.Agreed.Revision
	}
	return d
}

func intoState(r handoff.Record) IntoState {
	switch {
	case r.End == handoff.Refused:
		return IntoRefused
	case r.Step == handoff.None && r.Sealed:
		return IntoRemoved
	case r.End == handoff.Succeeded:
		return IntoRestored
	}
	if r.StaysStopped() {
		return IntoStopped
	}
	return IntoUndone
}

// order lists the phases in the order in which a restore passes them.
var order = []handoff.Phase{
	handoff.Pending, handoff.Planning, handoff.Staging, handoff.Fencing, handoff.Sealing, handoff.Placing, handoff.Releasing, handoff.Verifying,
	handoff.RollingBack,
}

// phasesOf returns the phases of r that have ended, with their durations.
func phasesOf(r handoff.Record) []Phase {
	all := []Phase{}
	for _, p := range order {
		took, found := r.Took[p]
		if found {
			all = append(all, Phase{Stage: strings.ToLower(string(p)), Seconds: took})
		}
	}
	return all
}
