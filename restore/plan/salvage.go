package plan

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/restore/disk"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Salvage is the part of a plan that comes from data dirs of stopped members. Its positions are raft indexes.
type Salvage struct {
	ClusterID string           `json:"clusterID"`          // of the old cluster, in hex
	Members   []catalog.Member `json:"members"`            // of the old cluster, according to the furthest database, or else to the newest backup
	Majority  bool             `json:"majority"`           // more than half of the voters' logs are undamaged, and all of their requests are in the base or in Log: no acknowledged write is missing
	Disks     []DiskSummary    `json:"disks"`              // one for each data dir
	Database  *DiskDatabase    `json:"database,omitempty"` // the base; absent if the base is a backup
	Log       *DiskLog         `json:"log,omitempty"`      // replayed last; absent if no requests of a disk are replayed
	LeftOut   Part             `json:"left"`               // the end of the log that is not restored
	// Disagreement describes how the members' key spaces contradict each other; "" if nothing shows that they do.
	Disagreement string `json:"disagree,omitempty"`
}

// Dirs returns the data dirs that the plan reads.
func (s *Salvage) Dirs() (dirs []string) {
	base := s.BaseDir()
	for _, d := range s.Disks {
		if d.Dir == base || s.Log != nil && s.Log.Dir == d.Dir {
			dirs = append(dirs, d.Dir)
		}
	}
	return dirs
}

// BaseDir returns the data dir whose database is the base; "" if the base is a backup.
func (s *Salvage) BaseDir() string {
	for _, d := range s.Disks {
		if s.Database != nil && strings.HasPrefix(s.Database.File, d.Dir+string(filepath.Separator)) {
			return d.Dir
		}
	}
	return ""
}

// DiskSummary describes one data dir.
type DiskSummary struct {
	Dir      string   `json:"dir"`
	Member   string   `json:"member"`   // id in hex
	Name     string   `json:"name"`     // "" if unknown
	Database uint64   `json:"database"` // position of its database; 0: it has no usable one
	Revision int64    `json:"revision"` // of its database
	First    uint64   `json:"first"`    // from this position on, its log has every entry; 0: no log can be read
	Commit   uint64   `json:"commit"`   // up to this position, its entries are known to be committed
	Last     uint64   `json:"last"`     // position of its last entry
	Term     uint64   `json:"term"`     // of its last entry
	Findings []string `json:"findings"` // its faults
}

// DiskDatabase is a database on a disk that is the base of a plan.
type DiskDatabase struct {
	File     string `json:"file"`
	Size     int64  `json:"size"`     // bytes
	Index    uint64 `json:"index"`    // its position
	Term     uint64 `json:"term"`     // of the entry there; 0: unknown
	Revision int64  `json:"revision"` // of its key space
}

// DiskLog is the part of a member's log that is replayed.
type DiskLog struct {
	Dir   string      `json:"dir"`
	After segment.End `json:"after"` // the entry directly before this part; if the base is a database, its digest is "" and its term may be 0 (unknown)
	UpTo  uint64      `json:"upTo"`  // position of the last entry of this part
	End   segment.End `json:"end"`   // the last entry of the whole log; if the log ends with a different one, it has changed since planning
	// Revision is where the replay stops, right after the request that made it; 0: it stops at UpTo.
	Revision int64  `json:"revision,omitempty"`
	Version  string `json:"version"` // of the servers that wrote it, which decides the rules of the replay; "": taken from the repository's log

	// Unusable is the first request of this part that the replay refuses, with the reason; "": none is known.
	Unusable string `json:"unusable,omitempty"`

	Certain  Part   `json:"certain"`  // known to be committed
	Probable Part   `json:"probable"` // also replayed: the last acknowledged requests, and perhaps some that were never committed
	Commit   uint64 `json:"commit"`   // the position where Certain ends
}

// Part counts a range of a log.
type Part struct {
	Positions uint64 `json:"positions"` // number of positions
	Requests  int    `json:"requests"`  // number of positions whose requests change the database
}

// Tail selects whether the end of a log is restored if no disk shows that it was committed.
type Tail string

// The values of Tail. Among the logs of a majority, at least one contains all acknowledged requests.
const (
	TailAuto Tail = ""    // all of it if the logs of a majority are present, else none
	TailAll  Tail = "all" // all of it, perhaps with requests that were never committed
)

// Disks are the data dirs from which to restore.
type Disks struct {
	Found   []disk.Disk
	Tail    Tail
	Base    string // the data dir whose database is the base, regardless of the repository; "": the plan chooses the base
	Version string // of the old servers, such as 3.5.12; "": the newest patch release of the minor version that the disks name

	backup   *catalog.Backup   // names the members if no disk does; nil: no backup
	archived []catalog.Lineage // the repository's log, without lineages from a watch
}

// salvaged returns the route to t that uses the disks, alone or after the end of the repository's log. It uses no disk if the
// repository reaches as far. In the repository it uses only the history of the disks' own cluster: an earlier restore may have begun
// another cluster under the same name.
func salvaged(c catalog.Catalog, t Target) (route, error) {
	c.Lineages = slices.DeleteFunc(slices.Clone(c.Lineages), isFromWatch)
	err := t.Disks.refuse(c)
	if err != nil {
		return route{}, err
	}
	kept, note := t.Disks.sameCluster(c)
	r, err := salvagedFrom(kept, t)
	if err == nil && note != "" {
		r.notes = append(r.notes, note)
	}
	return r, err
}

// salvagedFrom is salvaged for a catalog of the disks' cluster alone.
func salvagedFrom(c catalog.Catalog, t Target) (route, error) {
	disks := *t.Disks
	if len(c.Backups) > 0 {
		disks.backup = &c.Backups[0]
	}
	disks.archived = c.Lineages
	t.Disks = &disks
	if !t.Time.IsZero() && (len(c.Lineages) == 0 || disks.Base != "") {
		return route{}, fmt.Errorf("%w: the logs on the disks carry no times, only an archived log does: omit --to, or use --to-revision", ErrLayout)
	}
	if disks.Base != "" {
		return fromDisks(t)
	}
	b := disks.backup
	if b != nil && t.Revision == 0 && t.Time.IsZero() && b.RaftIndex > disks.end() {
		return t.withoutDisks(c, fmt.Sprintf("the disks end at position %d, before the newest backup: they are not needed", disks.end()))
	}
	if len(c.Lineages) == 0 {
		return withoutLog(c, t)
	}
	return continuedByDisks(c, t)
}

// isFromWatch reports whether l is from a watch. Its positions are revisions, so no disk's log can continue it.
func isFromWatch(l catalog.Lineage) bool {
	return len(l.Segments) > 0 && l.Segments[0].Source == segment.Watch
}

// end returns the highest position on any disk.
func (d *Disks) end() (position uint64) {
	for _, disk := range d.Found {
		position = max(position, disk.Log.Last.Position)
	}
	return max(position, d.committed())
}

func isRunning(d disk.Disk) bool { return d.Running }

// RefuseRunning returns the error for a data dir to which a running member still writes: a restore would lose its last writes.
func RefuseRunning(dir string) error {
	return fmt.Errorf("%w: a process has the data dir %s open: stop that member first, or pass --old-is-dead if no member runs there", fault.Refused, dir)
}

// summaries returns a description of each disk.
func (d *Disks) summaries() (all []DiskSummary) {
	for _, disk := range d.Found {
		r := DiskSummary{Dir: disk.Dir, Member: disk.Member, Findings: []string{}}
		self, ok := disk.Self()
		if ok {
			r.Name = self.Name
		}
		for _, db := range disk.Databases {
			if db.Damage != "" {
				r.Findings = append(r.Findings, "its database is damaged: "+db.Damage)
			} else if db.Index > r.Database {
				r.Database, r.Revision = db.Index, db.Revision
			}
		}
		if len(disk.Databases) == 0 {
			r.Findings = append(r.Findings, "it has no database")
		}
		r.describe(disk)
		all = append(all, r)
	}
	return all
}

func (s *DiskSummary) describe(d disk.Disk) {
	l := d.Log
	if l.Readable {
		s.First, s.Commit, s.Last, s.Term = l.First, l.Commit, l.Last.Position, l.Last.Term
	}
	switch {
	case !l.Readable:
		s.Findings = append(s.Findings, "its log cannot be read: "+l.Damage)
	case !l.Whole:
		s.Findings = append(s.Findings, fmt.Sprintf("its log is damaged after position %d (%s); the part after it is unknown", s.Last, l.Damage))
	case l.Damage != "":
		s.Findings = append(s.Findings, "its log is damaged before its database's position, but that part is not needed: "+l.Damage)
	}
	if l.Torn {
		s.Findings = append(s.Findings, "the last record of its log is incomplete: it was never acknowledged")
	}
	if d.Running {
		s.Findings = append(s.Findings, "a process has it open: anything it writes from now on is missing or incomplete")
	}
}

// furthest returns the disk whose log is ahead of the others, as raft compares them: by the last term, then by the position. Its log
// contains every committed entry of the other disks, since a leader has all entries that were committed before its term. ok is false if
// no log is usable.
func (d *Disks) furthest(usable func(disk.Log) bool) (best disk.Disk, ok bool) {
	for _, disk := range d.Found {
		l := disk.Log
		if !l.Readable || !usable(l) {
			continue
		}
		a, b := l.Last, best.Log.Last
		if !ok || a.Term > b.Term || a.Term == b.Term && a.Position > b.Position {
			best, ok = disk, true
		}
	}
	return best, ok
}

// committed returns the highest position that any disk knows to be committed.
func (d *Disks) committed() (position uint64) {
	for _, disk := range d.Found {
		position = max(position, disk.Log.Commit)
		for _, db := range disk.Databases {
			if db.Damage == "" {
				position = max(position, db.Index)
			}
		}
	}
	return position
}

// members returns the members in the database with the highest index that names any, and its index; else those in the newest backup.
func (d *Disks) members() (members []catalog.Member, at uint64) {
	for _, disk := range d.Found {
		for _, db := range disk.Databases {
			if db.Damage == "" && len(db.Members) > 0 && (members == nil || db.Index > at) {
				members, at = db.Members, db.Index
			}
		}
	}
	if len(members) == 0 && d.backup != nil {
		return d.backup.Members, d.backup.RaftIndex
	}
	return members, at
}

// majority reports whether the logs of more than half of the voters are here, undamaged. known is the membership as of position
// knownAt. If l changes the membership after that, each change may or may not be committed, so the logs must form a majority before
// and after it.
func (d *Disks) majority(known []catalog.Member, knownAt uint64, l disk.Log) bool {
	voters := map[string]bool{}
	for _, m := range known {
		voters[m.ID] = !m.Learner
	}
	if !d.hasMajorityOf(voters) {
		return false
	}
	for _, c := range l.Changes {
		if c.Position <= knownAt {
			continue
		}
		voters[c.Member] = c.Voter
		if !d.hasMajorityOf(voters) {
			return false
		}
	}
	return true
}

// hasMajorityOf reports whether the undamaged logs of more than half of voters are here. Ids with the value false do not vote.
func (d *Disks) hasMajorityOf(voters map[string]bool) bool {
	here, all := 0, 0
	for id, votes := range voters {
		if !votes {
			continue
		}
		all++
		if slices.ContainsFunc(d.Found, func(disk disk.Disk) bool { return disk.Member == id && disk.Log.Whole }) {
			here++
		}
	}
	return 2*here > all
}

// version returns the version of the servers whose rules the replay follows; "" if neither the operator nor a database names it.
func (d *Disks) version() string {
	if d.Version != "" {
		return d.Version
	}
	var newest uint64
	version := ""
	for _, disk := range d.Found {
		for _, db := range disk.Databases {
			if db.Damage == "" && db.Version != "" && (version == "" || db.Index > newest) {
				newest, version = db.Index, db.Version
			}
		}
	}
	parts := strings.Split(version, ".")
	if len(parts) > 2 {
		return parts[0] + "." + parts[1] + "." + newestPatch
	}
	return version
}

// newestPatch stands for the newest patch release, since databases name only the cluster's minor version.
const newestPatch = "999"
