package plan

import (
	"fmt"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// ChooseError is New's error for a target without any point if the newest history may be that of an emptied cluster: the operator has
// to choose. It matches catalog.ErrNotFound.
type ChooseError struct {
	change catalog.Change
	newest string // arguments that restore the newest history
	before string // arguments that restore the history before it
}

func (e *ChooseError) Error() string {
	return fmt.Sprintf("the point to restore is ambiguous: %s. Choose: %s restores the history before, %s the newest",
		e.change, e.before, e.newest)
}

// Unwrap makes e match catalog.ErrNotFound.
func (e *ChooseError) Unwrap() error { return catalog.ErrNotFound }

// CheckAmbiguous returns a ChooseError if no restore by dr began the history of the newest backups in c, and the history is either of the
// same cluster, started again without data, or of another cluster that is far smaller than the one before, or whose revisions are far lower.
// Members that lost their data form an empty cluster, and a backup of it must not pass for the newest state.
func CheckAmbiguous(c catalog.Catalog) error {
	change, ok := catalog.NewChange(c.Cluster, c.Backups)
	if !ok || !change.IsSuspect() {
		return nil
	}
	return &ChooseError{change: change, newest: flagsFor(c, change.Newest), before: flagsFor(c, change.Before)}
}

// flagsFor returns the arguments that restore the end of b's history.
func flagsFor(c catalog.Catalog, b catalog.Backup) string {
	for _, s := range stretches(c, "") {
		if s.has(b) {
			return fmt.Sprintf("--lineage %s (to the end of its log, revision %d)", s.Lineage, s.End().Revision)
		}
	}
	return fmt.Sprintf("the backup's ID, %s (revision %d)", b.ID, b.HighestRevision())
}

// isLatest reports whether t names no point, so that it means the newest.
func (t Target) isLatest() bool {
	return t.Backup == "" && t.File == "" && t.Revision == 0 && t.Time.IsZero() && t.Position == 0 && t.Lineage == "" && t.Disks == nil
}
