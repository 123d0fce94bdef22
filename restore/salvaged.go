package restore

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Salvaged describes the part of a restore that came from disks.
type Salvaged struct {
	Disks    []string `json:"disks"`    // data dirs of which the restore used something
	Position uint64   `json:"position"` // of the last restored request
	Revision int64    `json:"revision"` // of the key space there
	Certain  int      `json:"certain"`  // requests from a disk's log that are known to be committed
	Probable int      `json:"probable"` // the other requests from a disk's log
}

// checkPlace refuses a disk that was written after the plan was made.
func (r *run) checkPlace() error {
	if r.plan.Salvage == nil || r.plan.Salvage.Database == nil {
		return nil
	}
	planned := *r.plan.Salvage.Database
	if r.facts.index != planned.Index || r.facts.term != planned.Term {
		return fmt.Errorf("%w: %s is at position %d of term %d, and was at %d of %d when the plan was made: make a new plan",
			fault.Refused, planned.File, r.facts.index, r.facts.term, planned.Index, planned.Term)
	}
	return nil
}

// diskRecords yields the requests of the disk's log in a plan, and records their positions.
type diskRecords struct {
	log       *plan.DiskLog // nil: the plan uses no disk's log
	from      salvage.Part
	positions []uint64 // of the requests so far, ascending
}

// fromDisk returns the requests of the disk's log. If the plan ends them at a revision, fromDisk sets it in stop.
func (r *run) fromDisk(stop *replay.Stop) diskRecords {
	log := r.plan.DiskLog()
	if log == nil {
		return diskRecords{}
	}
	after := log.After
	if r.plan.Log == nil && r.facts.index > 0 { // a manifest has only bounds of a backup's position; an empty database of etcd 3.4 has none
		after = segment.End{Position: r.facts.index, Term: r.facts.term}
	}
	stop.Revision = max(stop.Revision, log.Revision)
	return diskRecords{log: log, from: salvage.Part{Dir: log.Dir, After: after, UpTo: log.UpTo, End: log.End}}
}

// records yields the server version of the disk's log, if it is known, and the requests.
func (d *diskRecords) records(ctx context.Context) iter.Seq2[segment.Record, error] {
	return func(yield func(segment.Record, error) bool) {
		if d.log == nil {
			return
		}
		v := d.log.Version
		if v != "" {
			if !yield(segment.Record{Kind: segment.ServerVersion, Position: d.from.After.Position, Data: []byte(v)}, nil) {
				return
			}
		}
		for record, err := range d.from.Records(ctx) {
			if err == nil {
				d.positions = append(d.positions, record.Position)
			}
			if !yield(record, err) {
				return
			}
		}
	}
}

// count returns the number of requests so far after a position, up to and including upTo.
func (d *diskRecords) count(after, upTo uint64) int {
	upToPosition := func(p uint64) int {
		i, _ := slices.BinarySearch(d.positions, p+1)
		return i
	}
	return max(0, upToPosition(upTo)-upToPosition(after))
}

// salvaged returns the part of the restore that came from disks; nil if none did.
func (r *run) salvaged() *Salvaged {
	s := r.plan.Salvage
	if s == nil {
		return nil
	}
	found := &Salvaged{Disks: s.Dirs(), Position: r.facts.index, Revision: r.facts.revision}
	if r.disk.log != nil {
		found.Certain = r.disk.count(0, min(r.disk.log.Commit, found.Position))
		found.Probable = r.disk.count(r.disk.log.Commit, found.Position)
	}
	return found
}
