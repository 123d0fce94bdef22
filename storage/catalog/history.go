package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// History is a series of backups of one etcd cluster that never lost its data in between. A restore by dr begins another
// history, with another cluster id.
type History struct {
	ClusterID string
	Backups   []Backup // newest first
	// Doubtful means that this history came after another one, that no restore by dr explains it, and that no pin confirms it. The
	// endpoints may be those of another cluster, or members that lost their data formed an empty one.
	Doubtful bool
}

// Newest returns the newest backup of h.
func (h History) Newest() Backup { return h.Backups[0] }

// farSmaller is the factor by which a database or its revision must shrink to count as far smaller.
const farSmaller = 2

// FarSmaller reports whether b's database has less than half the size of that in before.
func (b Backup) FarSmaller(before Backup) bool { return b.Plain.Size < before.Plain.Size/farSmaller }

// restartedEmpty reports whether b belongs to another history than before, an earlier backup with the same cluster id. Members
// that lose their data form a cluster with the same id if they have the same URLs and token. The size of a small database is
// close to that of an empty one, so the revisions count too.
func (b Backup) restartedEmpty(before Backup) bool {
	revision := b.HighestRevision()
	return revision < before.Revision && (b.FarSmaller(before) || revision < before.Revision/farSmaller)
}

// Histories returns the histories of the named cluster that the backups belong to, oldest first. The backups can be in any
// order and need not be complete: one of each history is enough.
func Histories(cluster string, backups []Backup) []History {
	oldestFirst := slices.SortedFunc(slices.Values(backups), func(a, b Backup) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.ID, b.ID))
	})
	var f finder
	for _, b := range oldestFirst {
		f.add(cluster, b)
	}
	histories := make([]History, len(f.found))
	for i, h := range f.found {
		slices.Reverse(h.Backups)
		histories[i] = *h
	}
	return histories
}

// finder assigns backups to histories, in the order in which they were taken.
type finder struct {
	found      []*History
	ownHistory *History // the newest history that is not doubtful; nil if there is none
}

func (f *finder) add(cluster string, b Backup) {
	h := f.of(b)
	if h == nil {
		restored := IsRestored(cluster, b.ClusterID) && !f.seen(b.ClusterID)
		h = &History{ClusterID: b.ClusterID, Doubtful: f.ownHistory != nil && !restored}
		f.found = append(f.found, h)
	}
	h.Backups = append(h.Backups, b)
	if slices.ContainsFunc(b.Pins, func(p Pin) bool { return p.Confirms }) {
		h.Doubtful = false
	}
	if !h.Doubtful {
		f.ownHistory = h
	}
}

// of returns the history that b continues: the cluster's own or a doubtful one; nil if there is none. An own history that
// another own history followed has ended: a later backup with its id comes from a member that was left running.
func (f *finder) of(b Backup) *History {
	for _, h := range slices.Backward(f.found) {
		current := h == f.ownHistory || h.Doubtful
		if current && SameClusterID(h.ClusterID, b.ClusterID) && !b.restartedEmpty(h.Backups[len(h.Backups)-1]) {
			return h
		}
	}
	return nil
}

func (f *finder) seen(clusterID string) bool {
	return slices.ContainsFunc(f.found, func(h *History) bool { return SameClusterID(h.ClusterID, clusterID) })
}

// Change means that the newest backups belong to a doubtful history.
type Change struct {
	Newest Backup // of the doubtful history
	Before Backup // the newest of the cluster's own history
}

// NewChange returns the change from the cluster's own history to the one of its newest backup. It is not ok if the newest
// backup belongs to the own history, or if there are no backups.
func NewChange(cluster string, backups []Backup) (Change, bool) {
	var newest, ownHistory *History
	for _, h := range Histories(cluster, backups) {
		if newest == nil || h.Newest().Started.After(newest.Newest().Started) {
			newest = &h
		}
		if !h.Doubtful {
			ownHistory = &h
		}
	}
	if newest == nil || !newest.Doubtful {
		return Change{}, false
	}
	return Change{Newest: newest.Newest(), Before: ownHistory.Newest()}, true
}

// SameCluster reports whether the same cluster lost its data; if not, another cluster was backed up.
func (c Change) SameCluster() bool { return SameClusterID(c.Newest.ClusterID, c.Before.ClusterID) }

// IsSuspect reports whether the newest backups may be of a cluster that began again without data. Its id may be the same, or the one that the
// cluster had before a restore by dr. The size alone does not show that: a small database is soon as large as before.
func (c Change) IsSuspect() bool {
	return c.SameCluster() || c.Newest.FarSmaller(c.Before) || c.Newest.HighestRevision() < c.Before.HighestRevision()/2
}

// String returns a sentence that describes both histories.
func (c Change) String() string {
	describe := func(b Backup) string {
		return fmt.Sprintf("backup %s of %s (cluster id %s, revision %d, %d KiB)",
			b.ID, b.Started.UTC().Format(time.RFC3339), b.ClusterID, b.HighestRevision(), b.Plain.Size>>10)
	}
	how := "another cluster was backed up under this name"
	if c.SameCluster() {
		how = "the cluster restarted empty with the same id, as members do that lost their data"
	}
	return fmt.Sprintf("%s, and no restore by dr explains it: %s came after %s", how, describe(c.Newest), describe(c.Before))
}
