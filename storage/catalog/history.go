package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// History is a series of backups of one etcd cluster that never began anew. A restore by dr begins another one, with another
// cluster id.
type History struct {
	ClusterID string
	Backups   []Backup // newest first
	// Doubtful: it came after another history, no restore by dr began it, and nobody has confirmed it with a pin. The
	// endpoints may be those of another cluster, or members that lost their data formed an empty one.
	Doubtful bool
}

// Newest returns the newest backup of h.
func (h History) Newest() Backup { return h.Backups[0] }

// farSmaller is the part of the size before that a database must not fall below, and of the revisions before.
const farSmaller = 2

// FarSmaller reports whether b's database has less than half the size of that of before.
func (b Backup) FarSmaller(before Backup) bool { return b.Plain.Size < before.Plain.Size/farSmaller }

// beganAnew reports whether b, taken later than before with the same cluster id, is of another history all the same. Members
// that lose their data form a cluster of the same id, if they have the same URLs and token. A small database has nearly the
// size of an empty one; then the revisions show it.
func (b Backup) beganAnew(before Backup) bool {
	revision := b.HighestRevision()
	return revision < before.Revision && (b.FarSmaller(before) || revision < before.Revision/farSmaller)
}

// Histories returns the histories that some backups of the named cluster belong to, the one that began first first. Any
// selection of the backups will do that has one of each history.
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

// finder is one Histories.
type finder struct {
	found []*History
	own   *History // the newest that is not doubtful
}

func (f *finder) add(cluster string, b Backup) {
	h := f.of(b)
	if h == nil {
		restored := IsRestored(cluster, b.ClusterID) && !f.seen(b.ClusterID)
		h = &History{ClusterID: b.ClusterID, Doubtful: f.own != nil && !restored}
		f.found = append(f.found, h)
	}
	h.Backups = append(h.Backups, b)
	if slices.ContainsFunc(b.Pins, func(p Pin) bool { return p.Confirms }) {
		h.Doubtful = false
	}
	if !h.Doubtful {
		f.own = h
	}
}

// of returns the history that b continues, nil if none: the own one, or a doubtful one. An own history that was followed by
// another is over: more backups of it are of a member that was left over.
func (f *finder) of(b Backup) *History {
	for _, h := range slices.Backward(f.found) {
		current := h == f.own || h.Doubtful
		if current && SameClusterID(h.ClusterID, b.ClusterID) && !b.beganAnew(h.Backups[len(h.Backups)-1]) {
			return h
		}
	}
	return nil
}

func (f *finder) seen(clusterID string) bool {
	return slices.ContainsFunc(f.found, func(h *History) bool { return SameClusterID(h.ClusterID, clusterID) })
}

// Change is that the newest backups are of a doubtful history.
type Change struct {
	Newest Backup // of the doubtful history
	Before Backup // the newest of the cluster's own history
}

// NewChange returns how the newest of some backups differ from those before; false if they are of the cluster's own history.
func NewChange(cluster string, backups []Backup) (Change, bool) {
	var newest, own *History
	for _, h := range Histories(cluster, backups) {
		if newest == nil || h.Newest().Started.After(newest.Newest().Started) {
			newest = &h
		}
		if !h.Doubtful {
			own = &h
		}
	}
	if newest == nil || !newest.Doubtful {
		return Change{}, false
	}
	return Change{Newest: newest.Newest(), Before: own.Newest()}, true
}

// BeganAnew reports whether the cluster lost its data, rather than being another one.
func (c Change) BeganAnew() bool { return SameClusterID(c.Newest.ClusterID, c.Before.ClusterID) }

// String describes both sides.
func (c Change) String() string {
	describe := func(b Backup) string {
		return fmt.Sprintf("backup %s of %s (cluster id %s, revision %d, %d KiB)",
			b.ID, b.Started.UTC().Format(time.RFC3339), b.ClusterID, b.HighestRevision(), b.Plain.Size>>10)
	}
	how := "another cluster was backed up under this name"
	if c.BeganAnew() {
		how = "the cluster began anew with the same id, as members do that lost their data"
	}
	return fmt.Sprintf("%s, and no restore by dr explains it: %s came after %s", how, describe(c.Newest), describe(c.Before))
}
