package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/restore/disk"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Salvage is what a plan takes from data dirs of members that do not run any more.
type Salvage struct {
	ClusterID string           `json:"clusterID"` // of the old cluster, in hex
	Members   []catalog.Member `json:"members"`   // of the old cluster, as far as they are known
	Majority  bool             `json:"majority"`  // the logs of more than half of the voters are here, whole
	Disks     []Remains        `json:"disks"`
	Database  *DiskDatabase    `json:"database,omitempty"` // the base; absent if a backup is
	Log       *DiskLog         `json:"log,omitempty"`      // what is replayed last; absent if nothing is
	Left      Part             `json:"left"`               // on the disks behind that, and not taken
	// Disagree is how the members' key spaces contradict each other, in words; "" if nothing shows that they do.
	Disagree string `json:"disagree,omitempty"`
}

// Remains is what one data dir holds.
type Remains struct {
	Dir      string   `json:"dir"`
	Member   string   `json:"member"`   // id in hex
	Name     string   `json:"name"`     // "" if it is not known
	Database uint64   `json:"database"` // position up to which the log is in its database; 0: there is none
	Revision int64    `json:"revision"` // of that
	First    uint64   `json:"first"`    // position from which on its log has every entry
	Commit   uint64   `json:"commit"`   // up to which it is known to be committed, by this disk
	Last     uint64   `json:"last"`     // and up to which it goes
	Term     uint64   `json:"term"`     // of the last
	Findings []string `json:"findings"` // what is wrong with it
}

// DiskDatabase is a database on a disk that is the base of a plan.
type DiskDatabase struct {
	File     string `json:"file"`
	Size     int64  `json:"size"`     // bytes
	Index    uint64 `json:"index"`    // position up to which the log is in it
	Term     uint64 `json:"term"`     // of the entry there; 0: not known
	Revision int64  `json:"revision"` // of its key space
}

// DiskLog is the part of a member's log that is replayed, and what it is worth.
type DiskLog struct {
	Dir   string      `json:"dir"`
	After segment.End `json:"after"` // where it goes on from; Digest and a Term of 0 are not known where a database is the base
	UpTo  uint64      `json:"upTo"`  // the last position
	End   segment.End `json:"end"`   // of the whole log, which pins it
	// Revision is where to stop, right after the request that made it; 0: at UpTo.
	Revision int64  `json:"revision,omitempty"`
	Version  string `json:"version"` // of the servers that wrote it: which rules it is replayed by; "" if the archive says

	Certain  Part   `json:"certain"`  // committed for sure
	Probable Part   `json:"probable"` // replayed too: what was acknowledged last, and perhaps what never was
	Commit   uint64 `json:"commit"`   // the position where certain ends
}

// Part is a stretch of a log, counted.
type Part struct {
	Positions uint64 `json:"positions"`
	Requests  int    `json:"requests"` // of them, those that change the database
}

// Tail says what to do with the end of a log of which no disk says that it was committed.
type Tail string

// The tails. With a majority of the members all is taken: what was acknowledged is on one of them, perhaps on one alone.
const (
	TailAuto Tail = ""    // all with a majority, else nothing of it
	TailAll  Tail = "all" // all: it may hold what was never committed
)

// Disks are the data dirs from which to restore.
type Disks struct {
	Found   []disk.Disk
	Tail    Tail
	Base    string // the data dir whose database is the base, whatever the archive has; "": the furthest
	Version string // of the old servers, such as 3.5.12; "": the newest of the minor version that the disks name

	backup   *catalog.Backup   // who the members were, where no disk tells
	archived []catalog.Lineage // of the same cluster
}

// salvaged is the way to a target with the disks: from them alone, or behind the archive's end.
func salvaged(c catalog.Catalog, t Target) (route, error) {
	c.Lineages = slices.DeleteFunc(slices.Clone(c.Lineages), notOfDisks)
	disks := *t.Disks
	if len(c.Backups) > 0 {
		disks.backup = &c.Backups[0]
	}
	disks.archived = c.Lineages
	t.Disks = &disks
	if err := t.Disks.refuse(c); err != nil {
		return route{}, err
	}
	if !t.Time.IsZero() && (len(c.Lineages) == 0 || disks.Base != "") {
		return route{}, fmt.Errorf("%w: the disks know no times, only an archive does: leave --to out, or say --to-revision", ErrLayout)
	}
	if disks.Base != "" {
		return fromDisks(t)
	}
	if b := disks.backup; b != nil && t.Revision == 0 && t.Time.IsZero() && b.RaftIndex > disks.end() {
		return t.archiveAlone(c, fmt.Sprintf("the disks end at position %d, and the newest backup was taken behind that: nothing of them is needed", disks.end()))
	}
	if len(c.Lineages) == 0 {
		return withoutArchive(c, t)
	}
	return behindArchive(c, t)
}

// notOfDisks: what a watch has seen is counted in revisions, and no disk's log goes on from one.
func notOfDisks(l catalog.Lineage) bool {
	return len(l.Segments) > 0 && l.Segments[0].Source == segment.Watch
}

// end is the highest position that any disk has.
func (d *Disks) end() (position uint64) {
	for _, disk := range d.Found {
		position = max(position, disk.Log.Last.Position)
	}
	return max(position, d.committed())
}

// refuse finds what must not be mixed.
func (d *Disks) refuse(c catalog.Catalog) error {
	for i, a := range d.Found {
		if a.Member != "" && d.strange(a) {
			return fmt.Errorf("%w: in %s the log is that of member %s, and the database does not know it: it is another cluster's",
				ErrRefused, a.Dir, a.Member)
		}
		for _, b := range d.Found[:i] {
			if err := refusePair(a, b); err != nil {
				return err
			}
		}
		for _, id := range clusterIDs(c) {
			if a.Cluster != "" && !catalog.SameClusterID(a.Cluster, id) {
				return fmt.Errorf("%w: %s is of the cluster with the id %s, the repository's is %s: leave the one or the other out",
					ErrRefused, a.Dir, a.Cluster, id)
			}
		}
	}
	return nil
}

// strange says that a disk's database has not heard of its member, although it is past the place where that joined.
func (d *Disks) strange(a disk.Disk) bool {
	return slices.ContainsFunc(a.Databases, func(db disk.Database) bool {
		joinsLater := slices.ContainsFunc(a.Log.Changes, func(c disk.Change) bool {
			return c.Member == a.Member && c.Position > db.Index
		})
		known := slices.ContainsFunc(db.Members, func(m catalog.Member) bool { return m.ID == a.Member })
		return db.Damage == "" && len(db.Members) > 0 && !known && !joinsLater && !slices.Contains(db.Removed, a.Member)
	})
}

func refusePair(a, b disk.Disk) error {
	switch {
	case a.Cluster != "" && b.Cluster != "" && a.Cluster != b.Cluster:
		return fmt.Errorf("%w: %s is of the cluster with the id %s, %s of %s: give the disks of one cluster",
			ErrRefused, b.Dir, b.Cluster, a.Dir, a.Cluster)
	case a.Member != "" && a.Member == b.Member:
		return fmt.Errorf("%w: %s and %s are both of member %s: give the newer one alone", ErrRefused, b.Dir, a.Dir, a.Member)
	case (a.Cluster == "" || b.Cluster == "") && !acquainted(a, b):
		return fmt.Errorf("%w: nothing in %s and %s says that they are of one cluster: give them one at a time", ErrRefused, b.Dir, a.Dir)
	}
	return nil
}

// acquainted says that both know a member in common.
func acquainted(a, b disk.Disk) bool {
	ids := func(d disk.Disk) (all []string) {
		for _, db := range d.Databases {
			for _, m := range db.Members {
				all = append(all, m.ID)
			}
		}
		return append(all, d.Member)
	}
	of := ids(b)
	return slices.ContainsFunc(ids(a), func(id string) bool { return id != "" && slices.Contains(of, id) })
}

func clusterIDs(c catalog.Catalog) (ids []string) {
	for _, b := range c.Backups {
		ids = append(ids, b.ClusterID)
	}
	for _, l := range c.Lineages {
		for _, s := range l.Segments {
			ids = append(ids, s.ClusterID)
		}
	}
	return slices.Compact(ids)
}

// refuseRunning: what a member still writes would be lost, or taken in half.
func (p Plan) refuseRunning(disks *Disks) error {
	if disks == nil || p.OldIsDead {
		return nil
	}
	for _, d := range disks.Found {
		if d.Running {
			return RefuseRunning(d.Dir)
		}
	}
	return nil
}

func RefuseRunning(dir string) error {
	return fmt.Errorf("%w: a process holds the data dir %s: stop that member first, or say --old-is-dead if it is none", ErrRefused, dir)
}

// remains describe the disks.
func (d *Disks) remains() (all []Remains) {
	for _, disk := range d.Found {
		r := Remains{Dir: disk.Dir, Member: disk.Member, Findings: []string{}}
		if self, ok := disk.Self(); ok {
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

func (r *Remains) describe(d disk.Disk) {
	l := d.Log
	if l.There {
		r.First, r.Commit, r.Last, r.Term = l.First, l.Commit, l.Last.Position, l.Last.Term
	}
	switch {
	case !l.There:
		r.Findings = append(r.Findings, "its log cannot be read: "+l.Damage)
	case !l.Whole:
		r.Findings = append(r.Findings, fmt.Sprintf("its log is good up to position %d: %s; what was behind is not known", r.Last, l.Damage))
	case l.Damage != "":
		r.Findings = append(r.Findings, "its log is damaged before its database's place, where nothing of it is needed: "+l.Damage)
	}
	if l.Torn {
		r.Findings = append(r.Findings, "the last record of its log is half written: it was not acknowledged")
	}
	if d.Running {
		r.Findings = append(r.Findings, "a process holds it: what it writes meanwhile is missing, or there in half")
	}
}

// furthest is the disk whose log is ahead of the others', as raft compares them: by the last term, then by the position.
// Whatever was committed and is on any of the disks is in it, for a leader has all that was committed before its term. ok
// is false if no log can be read.
func (d *Disks) furthest(usable func(disk.Log) bool) (best disk.Disk, ok bool) {
	for _, disk := range d.Found {
		l := disk.Log
		if !l.There || !usable(l) {
			continue
		}
		a, b := l.Last, best.Log.Last
		if !ok || a.Term > b.Term || a.Term == b.Term && a.Position > b.Position {
			best, ok = disk, true
		}
	}
	return best, ok
}

// committed is the highest position of which any disk says that it was.
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

// members are those that the database which is furthest knows.
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

// majority says that the logs of more than half of the voters are here, read to their ends. Where the log goes on with
// changes of the membership nobody knows which of them were committed, so it must be so before and after each.
func (d *Disks) majority(known []catalog.Member, at uint64, l disk.Log) bool {
	voters := map[string]bool{}
	for _, m := range known {
		voters[m.ID] = !m.Learner
	}
	if !d.most(voters) {
		return false
	}
	for _, c := range l.Changes {
		if c.Position <= at {
			continue
		}
		if voters[c.Member] = c.Voter; !d.most(voters) {
			return false
		}
	}
	return true
}

func (d *Disks) most(voters map[string]bool) bool {
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

// version is that of the servers, as a replay wants it.
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
	if parts := strings.Split(version, "."); len(parts) > 2 {
		return parts[0] + "." + parts[1] + "." + anyPatch
	}
	return version
}

// anyPatch is a patch release behind every one that there is: databases say only to which minor version a cluster belongs.
const anyPatch = "999"
