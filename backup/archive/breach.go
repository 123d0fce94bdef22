package archive

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/wal"
	"github.com/etcd-dr/etcd-dr/backup/watch"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// breach is why the log in the repository cannot be continued from this source. It is kept from turn to turn: other
// agents are let try first.
type breach struct {
	why   string
	end   segment.End // of what is stored, when it was found
	from  uint64      // in the same lineage, go on at this position; 0: in a new one
	since time.Time
}

// broken remembers an error that says that this source does not continue the repository's log, so that the next turn can
// begin anew if no other agent's does. Other errors pass through.
func (w *work) broken(err error) error {
	b := &breach{why: err.Error(), end: w.pending.end, since: time.Now()}
	from, gap, same := w.behindGap(err)
	switch {
	case gap && same:
		b.from = from
	case !gap && !isForked(err):
		return err
	}
	if old := w.breach; old != nil && old.end == b.end {
		b.since = old.since
	}
	if w.config.Source == segment.Watch { // no other watch has what the cluster has not; a spool may, but that is rare
		b.since = time.Time{}
	}
	w.breach = b
	return fmt.Errorf("%w: %w", errBreach, err)
}

// isBreach: trying the same again does not help.
func isBreach(err error) bool {
	_, isGap := errors.AsType[*wal.GapError](err)
	_, isCompacted := errors.AsType[*watch.GapError](err)
	_, isJump := errors.AsType[*watch.JumpError](err)
	return isGap || isCompacted || isJump || isForked(err)
}

func isForked(err error) bool {
	return errors.Is(err, wal.ErrForked) || errors.Is(err, watch.ErrForked) || errors.Is(err, errForked)
}

// behindGap is the position from which on the log is to be had again, if err says that a part of it is not. same: it is
// known to be the same history there.
func (w *work) behindGap(err error) (from uint64, gap, same bool) {
	if e, ok := errors.AsType[*wal.GapError](err); ok {
		return e.To + 1, true, w.took
	}
	if e, ok := errors.AsType[*watch.GapError](err); ok {
		return uint64(e.To) + 1, true, w.took
	}
	if e, ok := errors.AsType[*watch.JumpError](err); ok {
		return uint64(e.To) + 1, w.jumpedAgain(e), uint64(e.From) == w.pending.last+1 // what is before it was there
	}
	return 0, false, false
}

// jumpedAgain: what a watch has left out it may tell when it is asked again, so only the second time is it gone.
func (w *work) jumpedAgain(e *watch.JumpError) bool {
	again := w.jumped == e.From
	w.jumped = e.From
	return again
}
