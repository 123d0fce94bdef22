package archive

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/wal"
	"github.com/etcd-dr/etcd-dr/backup/watch"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// breach is the reason why this source cannot continue the log in the repository. It is kept across turns, so that other agents
// can try first.
type breach struct {
	why   string
	end   segment.End // of the stored log, when the breach was found
	from  uint64      // continue the same lineage at this position; 0: start a new one
	since time.Time   // when the other agents' time to take over began; zero: they get none
}

// recordBreach records err as a breach if this source does not continue the repository's log. If no other agent continues the log
// either, the next turn records a gap where the history is known to be the same, and starts a new lineage if it is not. recordBreach
// returns other errors unchanged.
func (w *work) recordBreach(err error) error {
	b := &breach{why: err.Error(), end: w.pending.end, since: time.Now()}
	from, gap, same := w.positionAfterGap(err)
	switch {
	case gap && same:
		b.from = from
	case !gap && !isForked(err):
		return err
	}
	old := w.breach
	if old != nil && old.end == b.end {
		b.since = old.since
	}
	if w.config.Source == segment.Watch { // no other watch has changes that the cluster has compacted; only another spool may
		b.since = time.Time{}
	}
	w.breach = b
	return fmt.Errorf("%w: %w", errBreach, err)
}

// isBreach reports whether a retry with the same source cannot help.
func isBreach(err error) bool {
	_, isGap := errors.AsType[*wal.GapError](err)
	_, isCompacted := errors.AsType[*watch.GapError](err)
	_, isJump := errors.AsType[*watch.JumpError](err)
	return isGap || isCompacted || isJump || isForked(err)
}

func isForked(err error) bool {
	return errors.Is(err, wal.ErrForked) || errors.Is(err, watch.ErrForked) || errors.Is(err, errForked)
}

// positionAfterGap returns the first position after the gap that err describes, 0 if it describes none. same reports whether the history
// there is known to be the same.
func (w *work) positionAfterGap(err error) (from uint64, gap, same bool) {
	purged, ok := errors.AsType[*wal.GapError](err)
	if ok {
		return purged.To + 1, true, w.hasTaken || purged.Unusable != nil // only a log that continues the stored entries gets there
	}
	compacted, ok := errors.AsType[*watch.GapError](err)
	if ok {
		return uint64(compacted.To) + 1, true, w.hasTaken
	}
	jump, ok := errors.AsType[*watch.JumpError](err)
	if ok {
		return uint64(jump.To) + 1, w.jumpedAgain(jump), uint64(jump.From) == w.pending.last+1 // the positions before it were read
	}
	return 0, false, false
}

// jumpedAgain reports whether the watch has omitted the same revision twice. After the first time a new watch may return it.
func (w *work) jumpedAgain(e *watch.JumpError) bool {
	again := w.jumped == e.From
	w.jumped = e.From
	return again
}
