package restore

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/restore/salvage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Salvaged is what a restore took from disks.
type Salvaged struct {
	Disks    []string `json:"disks"`    // data dirs of which something was taken
	Position uint64   `json:"position"` // of the last request that is in the restored state
	Revision int64    `json:"revision"` // of the key space there
	Certain  int      `json:"certain"`  // requests from a disk's log of which it is known that they were committed
	Probable int      `json:"probable"` // and those of which it is not
}

// replays says that something is applied to the base.
func (p Plan) replays() bool { return p.Log != nil || p.diskLog() != nil }

func (p Plan) diskLog() *DiskLog {
	if p.Salvage == nil {
		return nil
	}
	return p.Salvage.Log
}

// checkPlace: the disk may have been written since it was looked at.
func (r *run) checkPlace() error {
	if r.plan.Salvage == nil || r.plan.Salvage.Database == nil {
		return nil
	}
	planned := *r.plan.Salvage.Database
	if r.facts.index != planned.Index || r.facts.term != planned.Term {
		return fmt.Errorf("%w: %s is at position %d of term %d, and was at %d of %d when the plan was made: make it anew",
			ErrRefused, planned.File, r.facts.index, r.facts.term, planned.Index, planned.Term)
	}
	return nil
}

// diskRecords are the requests of a plan's disk log. It remembers which came.
type diskRecords struct {
	log  *DiskLog
	from salvage.Part
	came []uint64 // positions
}

// fromDisk is where the disk's log goes on, and takes up where it stops.
func (r *run) fromDisk(stop *replay.Stop) diskRecords {
	log := r.plan.diskLog()
	if log == nil {
		return diskRecords{}
	}
	after := log.After
	if r.plan.Log == nil && r.facts.index > 0 { // a manifest knows a backup's place only about; an empty one of etcd 3.4 has none
		after = segment.End{Position: r.facts.index, Term: r.facts.term}
	}
	stop.Revision = max(stop.Revision, log.Revision)
	return diskRecords{log: log, from: salvage.Part{Dir: log.Dir, After: after, UpTo: log.UpTo, End: log.End}}
}

func (d *diskRecords) records(ctx context.Context) iter.Seq2[segment.Record, error] {
	return func(yield func(segment.Record, error) bool) {
		if d.log == nil {
			return
		}
		if v := d.log.Version; v != "" {
			if !yield(segment.Record{Kind: segment.ServerVersion, Position: d.from.After.Position, Data: []byte(v)}, nil) {
				return
			}
		}
		for record, err := range d.from.Records(ctx) {
			if err == nil {
				d.came = append(d.came, record.Position)
			}
			if !yield(record, err) {
				return
			}
		}
	}
}

// count is how many of those that came lie behind after, up to and including upTo.
func (d *diskRecords) count(after, upTo uint64) int {
	behind := func(p uint64) int {
		i, _ := slices.BinarySearch(d.came, p+1)
		return i
	}
	return max(0, behind(upTo)-behind(after))
}

// salvaged says what came from disks, if anything did.
func (r *run) salvaged() *Salvaged {
	s := r.plan.Salvage
	if s == nil {
		return nil
	}
	found := &Salvaged{Disks: s.dirs(), Position: r.facts.index, Revision: r.facts.revision}
	if r.disk.log != nil {
		found.Certain = r.disk.count(0, min(r.disk.log.Commit, found.Position))
		found.Probable = r.disk.count(r.disk.log.Commit, found.Position)
	}
	return found
}

// dirs are the data dirs from which something is taken.
func (s *Salvage) dirs() (dirs []string) {
	for _, d := range s.Disks {
		base := s.Database != nil && strings.HasPrefix(s.Database.File, d.Dir+string(filepath.Separator))
		if base || s.Log != nil && s.Log.Dir == d.Dir {
			dirs = append(dirs, d.Dir)
		}
	}
	return dirs
}

// without takes a database out that turned out to be damaged.
func (d Disks) without(file string, why error) *Disks {
	d.Found = slices.Clone(d.Found)
	for i, disk := range d.Found {
		databases := slices.Clone(disk.Databases)
		for k := range databases {
			if databases[k].File == file {
				databases[k].Damage = why.Error()
			}
		}
		d.Found[i].Databases = databases
	}
	return &d
}

// endOfDisks is what can still be hoped for when everything has been replayed, and the revision was not reached.
func (t Target) endOfDisks(c catalog.Catalog, ended int64) (catalog.Catalog, Target, error) {
	if !t.Best {
		return c, t, &UnreachableError{
			Why: fmt.Sprintf("the disks' logs end before revision %d", t.Revision), Nearest: fmt.Sprintf("revision %d, their end", ended),
		}
	}
	t.Revision = 0
	return c, t, nil
}

// beforeUnknown ends at the revision behind which a log has something that cannot be applied.
func (t Target) beforeUnknown(c catalog.Catalog, reached int64) (catalog.Catalog, Target, error) {
	if !t.Best {
		return c, t, &UnreachableError{
			Why: "what follows in the log cannot be replayed", Nearest: fmt.Sprintf("revision %d", reached),
		}
	}
	t.Revision = reached
	return c, t, nil
}
