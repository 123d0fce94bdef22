package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/disk"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// sameCluster returns the backups and the log in c that have the disks' cluster id, or c if no disk knows its id. The note names the newest
// backup that is left out; "" if none is.
func (d *Disks) sameCluster(c catalog.Catalog) (kept catalog.Catalog, note string) {
	id := d.clusterID()
	if id == "" {
		return c, ""
	}
	isOther := func(b catalog.Backup) bool { return !catalog.SameClusterID(b.ClusterID, id) }
	kept = c
	kept.Backups = slices.DeleteFunc(slices.Clone(c.Backups), isOther)
	kept.Lineages = slices.DeleteFunc(slices.Clone(c.Lineages), func(l catalog.Lineage) bool {
		return len(l.Segments) > 0 && !catalog.SameClusterID(l.Segments[0].ClusterID, id)
	})
	i := slices.IndexFunc(c.Backups, isOther)
	if i < 0 {
		return kept, ""
	}
	b := c.Backups[i]
	return kept, fmt.Sprintf("the disks are of cluster id %s: the backups and the log of cluster id %s are not used (the newest, %s, began at %s)",
		id, b.ClusterID, b.ID, b.Started.UTC().Format(time.RFC3339))
}

// clusterID returns the cluster id of the disks; "" if none knows it.
func (d *Disks) clusterID() (id string) {
	for _, disk := range d.Found {
		id = cmp.Or(id, disk.Cluster)
	}
	return id
}

// refuse returns an error if the disks are not of one cluster, or nothing in c is of it.
func (d *Disks) refuse(c catalog.Catalog) error {
	ids := knownClusterIDs(c)
	for i, a := range d.Found {
		if a.Member != "" && isForeign(a) {
			return fmt.Errorf("%w: in %s the log is that of member %s, and the database does not know it: it is of another cluster: leave that directory out",
				fault.Refused, a.Dir, a.Member)
		}
		for _, b := range d.Found[:i] {
			err := refusePair(a, b)
			if err != nil {
				return err
			}
		}
		if a.Cluster != "" && len(ids) > 0 && !slices.ContainsFunc(ids, func(id string) bool { return catalog.SameClusterID(a.Cluster, id) }) {
			return fmt.Errorf("%w: %s is of cluster id %s, the repository is of %s: leave one of them out",
				fault.Refused, a.Dir, a.Cluster, strings.Join(ids, ", "))
		}
	}
	return nil
}

// isForeign reports whether a disk's database does not know the disk's member, although it is past the position at which the member
// joined.
func isForeign(a disk.Disk) bool {
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
		return fmt.Errorf("%w: %s is of cluster id %s, %s of %s: name the disks of one cluster",
			fault.Refused, b.Dir, b.Cluster, a.Dir, a.Cluster)
	case a.Member != "" && a.Member == b.Member:
		return fmt.Errorf("%w: %s and %s are both of member %s: name only the newer one", fault.Refused, b.Dir, a.Dir, a.Member)
	case (a.Cluster == "" || b.Cluster == "") && !shareMember(a, b):
		return fmt.Errorf("%w: nothing in %s and %s shows that they are of one cluster: name only one of them", fault.Refused, b.Dir, a.Dir)
	}
	return nil
}

// shareMember reports whether both disks know the same member.
func shareMember(a, b disk.Disk) bool {
	ids := func(d disk.Disk) (all []string) {
		for _, db := range d.Databases {
			for _, m := range db.Members {
				all = append(all, m.ID)
			}
		}
		return append(all, d.Member)
	}
	others := ids(b)
	return slices.ContainsFunc(ids(a), func(id string) bool { return id != "" && slices.Contains(others, id) })
}
