package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/disk"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// known is a position at which a member, or the repository, knows the revision of its key space.
type known struct {
	who      string // a data dir, a member, or the repository
	position uint64
	revision int64
}

// disagreement describes how the members' key spaces contradict each other; "" if nothing shows that they do. At one position all
// members have applied the same requests, so they have the same revision, and each later request adds one revision at most.
func (d *Disks) disagreement() string {
	all := d.places()
	for i, a := range all {
		for _, b := range all[i+1:] {
			least, most := a.revision-d.slack(), a.revision+int64(d.requests(a.position, b.position))+d.slack()
			if b.revision < least || b.revision > most {
				return a.against(b)
			}
		}
	}
	return ""
}

// against describes how a and b contradict each other.
func (a known) against(b known) string {
	return fmt.Sprintf("the members disagree, at the latest from revision %d on: at position %d %s is at revision %d, at position %d %s is at revision %d",
		min(a.revision, b.revision)+1, a.position, a.who, a.revision, b.position, b.who, b.revision)
}

// places returns the positions of the databases, with the repository's revision at each, sorted by position.
func (d *Disks) places() (all []known) {
	for _, disk := range d.Found {
		for _, db := range disk.Databases {
			if db.Damage != "" || db.Index == 0 {
				continue
			}
			all = append(all, known{who: disk.Dir, position: db.Index, revision: db.Revision})
			revision := d.archivedAt(db.Index)
			if revision > 0 {
				all = append(all, known{who: "the repository", position: db.Index, revision: revision})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b known) int { return cmp.Compare(a.position, b.position) })
	return all
}

// archivedAt returns the revision at a position in the newest history that knows it; 0 if none does.
func (d *Disks) archivedAt(position uint64) (revision int64) {
	for _, l := range d.archived {
		for _, s := range l.Stretches() {
			revision = cmp.Or(s.RevisionAt(position), revision)
		}
	}
	return revision
}

// requests returns an upper bound for the number of requests after one position, up to another.
func (d *Disks) requests(after, upTo uint64) uint64 {
	log, ok := d.furthest(func(l disk.Log) bool { return l.ContinuesFrom(after) && upTo <= l.Last.Position })
	if !ok {
		return upTo - after
	}
	return uint64(log.Log.Count(after, upTo))
}

// slack returns by how much the revision at a database's index may be off: etcd 3.4 sometimes writes an index that is one too high.
func (d *Disks) slack() int64 {
	if strings.HasPrefix(d.version(), "3.4.") {
		return 1
	}
	return 0
}

// maxUnnoticed is the longest time that a difference between members stays unnoticed. By default the members' hashes are compared once
// an hour.
const maxUnnoticed = time.Hour

// logNotes returns notes on data that the log of r does not contain, and on members that held different data when the log was written
// or soon after. Such members matter because a log's marks come from one member.
func logNotes(c catalog.Catalog, r route) (notes []string) {
	if r.log == nil {
		return nil
	}
	unseen := UnseenBy(r.log.Source)
	if unseen != "" {
		notes = append(notes, "the log contains only what a client could see: "+unseen)
	}
	log := *r.log
	i := slices.IndexFunc(c.Lineages, func(l catalog.Lineage) bool { return l.ID == log.Lineage })
	segments := c.Lineages[i].Segments
	difference := log.disagreement(r.base, segments)
	if difference != "" {
		notes = append(notes, difference+": the replay is compared with both, and may be refused there")
	}
	different := log.different(segments)
	if different != "" {
		notes = append(notes, different)
	}
	if difference != "" || different != "" {
		notes = append(notes, otherMember(c, r.base))
	}
	return notes
}

// otherMember returns a note that names the member whose data a restore from base returns, and how to restore another member's data.
// The log does not decide this: it contains the requests, which are equal on all members, or the changes that one member made.
func otherMember(c catalog.Catalog, base catalog.Backup) string {
	i := slices.IndexFunc(c.Backups, func(b catalog.Backup) bool {
		return b.Member.ID != base.Member.ID && catalog.SameClusterID(b.ClusterID, base.ClusterID)
	})
	if i < 0 {
		return fmt.Sprintf("the base decides whose data is restored: all backups are of member %s", base.Member.ID)
	}
	other := c.Backups[i]
	return fmt.Sprintf("the base decides whose data is restored, here that of member %s: dr restore %s restores the data of member %s, without the log",
		base.Member.ID, other.ID, other.Member.ID)
}

// different returns a note on members that were known to hold different data when the segments of l were written or soon after; "" if
// they were not.
func (l Log) different(segments []catalog.Segment) string {
	var last time.Time
	for _, s := range segments {
		if s.Seq <= l.Last {
			last = s.Written
		}
		if s.Diverged == "" || s.Seq < l.First || s.FirstSeq() > l.Last && s.Written.Sub(last) > maxUnnoticed {
			continue
		}
		return fmt.Sprintf(
			"the members held different data, noticed by %s, and may have before: %s. The log's revisions and hashes are those of member %s",
			s.Written.UTC().Format(time.RFC3339), s.Diverged, s.Member)
	}
	return ""
}

// UnseenBy describes the state that a log from source does not contain; "" if it contains everything.
func UnseenBy(source segment.Source) string {
	if source == segment.Watch {
		return "users and roles, leases without keys, and alarms are as in the backup"
	}
	return ""
}

// disagreement describes how the revisions that members reported in base and in the log contradict each other; "" if they do not.
// Each request adds one revision at most.
func (l Log) disagreement(base catalog.Backup, segments []catalog.Segment) string {
	var before known
	for _, s := range segments {
		if l.Source == segment.Watch || s.Seq < l.First || s.FirstSeq() > l.Last {
			continue
		}
		for _, m := range s.Marks {
			if m.Revision == 0 {
				continue
			}
			now := known{who: "member " + s.Member, position: m.Position, revision: m.Revision}
			fits := now.revision >= before.revision && now.revision-before.revision <= int64(now.position-before.position)
			switch {
			case before.who != "" && now.who != before.who && !fits:
				return before.against(now)
			case s.Member != base.Member.ID && contradicts(base, m):
				who := fmt.Sprintf("member %s in backup %s", base.Member.ID, base.ID)
				return known{who: who, position: base.RaftIndex, revision: base.Revision}.against(now)
			}
			before = now
		}
	}
	return ""
}

// contradicts reports whether base, whose position and revision lie between bounds, cannot be of a history in which m holds. A base's
// position may be one too high (etcd 3.4).
func contradicts(base catalog.Backup, m segment.Mark) bool {
	switch {
	case base.RevisionMax == 0:
		return false
	case m.Position >= base.HighestIndex():
		return m.Revision < base.Revision || m.Revision-base.RevisionMax > int64(m.Position-base.RaftIndex)+1
	case m.Position <= base.RaftIndex:
		return m.Revision > base.RevisionMax+1 || base.Revision-m.Revision > int64(base.HighestIndex()-m.Position)
	}
	return false
}
