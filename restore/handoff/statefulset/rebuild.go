package statefulset

import (
	"context"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Rebuild makes the record of this restore again, which another program has deleted, and stores it with the settings. It returns the zero
// Record if the restore has not changed the StatefulSet, which is all that shows the phase: while members are stopped, restored ones have
// not served yet, and the restore goes back. Otherwise the error matches fault.Refused: they may have acknowledged writes.
func (m *Manager) Rebuild(ctx context.Context, settings string) (handoff.Record, error) {
	set, err := m.readSet(ctx)
	if err != nil || set.Annotations[restoreAnnotation] != m.ID {
		return handoff.Record{}, err
	}
	lost := fmt.Sprintf("the record of restore %s of %s was deleted (ConfigMap %s)", m.ID, m, m.mapName())
	marked, _ := markOf(set)
	if !marked.Stopped {
		return handoff.Record{}, fmt.Errorf("%w: %s, and its members may serve restored data: compare what they serve with what you expect; to keep it, run "+
			"kubectl -n %s annotate statefulset %s %s- %s-, and dr resume%s; the old data stays on the disks, in folders whose names begin with .dr-swap- and "+
			"end with %s; restore again only with another command, such as another target", fault.Refused, lost, m.Namespace, m.Name, restoreAnnotation,
			markAnnotation, controlBack(set), m.ID)
	}
	h, err := m.Inspect(ctx)
	if err != nil {
		return handoff.Record{}, err
	}
	if len(h.Members) == 0 { // the first finding is why
		return handoff.Record{}, fmt.Errorf("%w: %s, and cannot be made again: %s: once that is cured, run the same command again", fault.Refused, lost, h.Findings[0])
	}
	record := handoff.Rebuild(m.ID, handoff.Placing, h, time.Now().UTC())
	record.Settings = settings
	p, err := m.Take(ctx, record)
	if err == nil && !p.Done {
		err = fmt.Errorf("%w: %s: %s", fault.Busy, lost, p.Waiting)
	}
	if err == nil {
		err = m.Save(ctx, handoff.Record{}, record)
	}
	return record, err
}
