package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Aim selects the points to drill.
type Aim struct {
	// Targets are the points to restore. If empty, they are the newest backup and, if there is a log, a position in the newest
	// recovery window, drawn with Seed. The same seed draws the same position of the same window.
	Targets    []plan.Target
	BackupOnly bool // only the newest backup, without a position in the log
	Seed       uint64
	Plain      plan.Plain // how to treat backups and segments that are not encrypted
}

// exercise is one restore of a drill.
type exercise struct {
	plan   plan.Plan
	drill  catalog.Drill    // the fields that are known before the restore
	hashes []catalog.HashKV // of the member, up to the plan's end, newest first
}

// plan returns the restores of a drill, which depend only on the repository, the aim and now, and an error for targets that
// cannot be planned. c must have been loaded with proofs and log; unfold reads its folded segments.
func (a Aim) plan(ctx context.Context, c catalog.Catalog, unfold restore.Unfold, now time.Time) (exercises []exercise, faults error) {
	whole := c
	if a.Plain == plan.PlainSkipped {
		c = plan.Encrypted(c)
	}
	points, faults := a.points(c)
	if len(a.Targets) == 0 && !a.BackupOnly {
		faults = errors.Join(faults, cutOff(whole))
	}
	for _, p := range points {
		p.target.Plain = a.Plain
		detailed, err := restore.Detail(ctx, plan.Request{Catalog: c, Target: p.target}, unfold)
		var planned plan.Plan
		if err == nil {
			planned, err = plan.New(detailed, p.target, scratchLayout(), now)
		}
		if err != nil {
			faults = errors.Join(faults, fmt.Errorf("drill %s: %w", p.words, err))
			continue
		}
		exercises = append(exercises, newExercise(detailed, planned, p))
	}
	for i := range exercises {
		exercises[i].drill.Part, exercises[i].drill.Parts = i+1, len(exercises)
	}
	return exercises, faults
}

// point is a target and its description.
type point struct {
	target plan.Target
	words  string
	seed   uint64 // with which the target was drawn; 0: not drawn
}

// points returns the targets of a. The error reports that there is no backup, if Targets is empty.
func (a Aim) points(c catalog.Catalog) (points []point, err error) {
	for _, t := range a.Targets {
		points = append(points, point{target: t, words: wordsOf(t)})
	}
	if len(a.Targets) > 0 {
		return points, nil
	}
	newest, err := c.Latest()
	if err == nil {
		points = append(points, point{target: plan.Target{Backup: newest.ID}, words: "the newest backup"})
	}
	p, ok := a.draw(c.Windows())
	if ok && !a.BackupOnly {
		points = append(points, p)
	}
	return points, err
}

// cutOff returns an error if the newest lineage has a fault and no restorable stretch after it. A drill of a drawn position would
// not find this loss: the position is before the fault.
func cutOff(c catalog.Catalog) error {
	if len(c.Lineages) == 0 {
		return nil
	}
	newest := c.Lineages[len(c.Lineages)-1]
	stretches := newest.Stretches()
	for _, f := range slices.Backward(newest.Faults) {
		if len(stretches) > 0 {
			last := stretches[len(stretches)-1]
			end := last.Segments[len(last.Segments)-1]
			if f.Upto < end.Seq && len(c.Bases(last)) > 0 {
				continue
			}
		}
		return fmt.Errorf("drill the log: %w: nothing from %s onwards can be restored: %w", catalog.ErrDamaged, f.Key, f.Err)
	}
	return nil
}

// draw returns a position of the newest window, uniformly distributed; false if there is no window.
func (a Aim) draw(windows []catalog.Window) (point, bool) {
	if len(windows) == 0 {
		return point{}, false
	}
	w := windows[len(windows)-1]
	random := rand.New(rand.NewPCG(a.Seed, 0))
	at := w.From.Position + random.Uint64N(w.To.Position-w.From.Position+1)
	words := fmt.Sprintf("position %d, drawn from %d to %d", at, w.From.Position, w.To.Position)
	return point{plan.Target{Lineage: w.Lineage, Position: at}, words, a.Seed}, true
}

// wordsOf returns the description of t.
func wordsOf(t plan.Target) string {
	switch {
	case t.Backup != "":
		return "backup " + string(t.Backup)
	case t.Revision > 0:
		return fmt.Sprintf("revision %d", t.Revision)
	case !t.Time.IsZero():
		return t.Time.UTC().Format(time.RFC3339Nano)
	case t.Position > 0:
		return fmt.Sprintf("position %d", t.Position)
	}
	return "the newest point"
}

func newExercise(c catalog.Catalog, plan plan.Plan, p point) exercise {
	e := exercise{plan: plan, drill: catalog.Drill{Target: p.words, Seed: p.seed}, hashes: memberHash(*plan.Backup)}
	if plan.Log == nil {
		return e
	}
	e.drill.Lineage, e.drill.Position = plan.Log.Lineage, plan.Reach.Position
	e.drill.NotBefore, e.drill.NotAfter = plan.Reach.NotBefore, plan.Reach.NotAfter
	for _, l := range c.Lineages {
		if l.ID == plan.Log.Lineage {
			e.hashes = append(hashesOf(l, *plan.Log), e.hashes...)
		}
	}
	return e
}

// hashesOf returns the hashes in the plan's segments before its end, newest first.
func hashesOf(l catalog.Lineage, log plan.Log) (hashes []catalog.HashKV) {
	for _, s := range l.Segments {
		if s.Seq < log.First || s.FirstSeq() > log.Last {
			continue
		}
		for _, h := range s.Hashes {
			if (log.Position == 0 || h.Position <= log.Position) && (log.Revision == 0 || h.Revision <= log.Revision) {
				hashes = append(hashes, catalog.HashKV{Revision: h.Revision, CompactRevision: h.CompactRevision, Hash: h.Hash})
			}
		}
	}
	slices.Reverse(hashes)
	return hashes
}
