package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// errDiscontinuous means that a segment of the spool can never be stored.
var errDiscontinuous = errors.New("it does not continue the segment stored before it")

// emptySpool stores the segments of the spool while this agent does not work, because another one does or the cluster does not
// respond. After a disaster they may be the last copy. It needs no lease, because a segment's name can be created only once.
func (a *archiver) emptySpool(ctx context.Context) error {
	a.board.set(func(b *Status) { b.Spool = a.spool.status() })
	if a.spool.segments == 0 {
		return nil
	}
	tail, err := a.to.Log().Tail(ctx)
	if err != nil {
		return err
	}
	following, stranded, err := a.spool.sort(tail)
	if err != nil {
		return err
	}
	for _, s := range stranded {
		err := a.storeStranded(ctx, s)
		if err != nil && !isUnstorable(err) {
			return fmt.Errorf("store the spool: %v", err) // %v, as in storeSpooled
		}
		a.finishSpooled(s, err)
	}
	for _, s := range following {
		err := a.storeSpooled(ctx, s)
		if err != nil {
			return err
		}
		a.note("segment %d of lineage %s is stored, from the spool", s.Seq, s.Lineage)
	}
	return nil
}

// storeStranded stores a segment of the spool that does not continue the newest lineage. It may still continue its own lineage, if
// its name there is free. An error that matches isUnstorable means that the segment can never be stored.
func (a *archiver) storeStranded(ctx context.Context, s catalog.Segment) error {
	stored, err := a.to.Log().Segments(ctx, s.Lineage, []uint64{s.Seq})
	switch {
	case err == nil && stored[0].Digest == s.Digest:
		return nil
	case err == nil:
		return &log.TakenError{Segment: stored[0]}
	case !errors.Is(err, storage.ErrNotExist):
		return err
	}
	err = a.checkPrevious(ctx, s)
	if err != nil {
		return err
	}
	e, err := a.spool.get(s.Header)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", storage.ErrDamaged, err)
	}
	if err != nil {
		return err
	}
	return a.storeOnce(ctx, e)
}

// checkPrevious returns errDiscontinuous if the stored segment before s is not the one that s continues. If there is no stored segment
// before s, for example after a prune, s can still be stored.
func (a *archiver) checkPrevious(ctx context.Context, s catalog.Segment) error {
	if s.Seq == 1 {
		return nil
	}
	before, err := a.to.Log().Segments(ctx, s.Lineage, []uint64{s.Seq - 1})
	switch {
	case errors.Is(err, storage.ErrNotExist), errors.Is(err, catalog.ErrDamaged):
		return nil
	case err != nil:
		return err
	case before[0].Digest != s.Previous:
		return errDiscontinuous
	}
	return nil
}

// finishSpooled removes s from the spool. If outcome is nil, s was stored; otherwise outcome is why it never can be.
func (a *archiver) finishSpooled(s catalog.Segment, outcome error) {
	if outcome != nil {
		a.removeUseless(s, outcome)
		return
	}
	a.note("segment %d of lineage %s is stored, from the spool", s.Seq, s.Lineage)
	err := a.spool.remove(s)
	if err != nil {
		a.warn("%v", err)
	}
	a.board.set(func(b *Status) {
		b.addSegment(s)
		b.Spool = a.spool.status()
	})
}

// removeUseless removes s from the spool, and reports what is lost with it.
func (a *archiver) removeUseless(s catalog.Segment, why error) {
	a.warn("segment %d of lineage %s, with revisions %d to %d, is removed from the spool: it can never be stored: %v",
		s.Seq, s.Lineage, s.First, s.Last, why)
	err := a.spool.remove(s)
	if err != nil {
		a.warn("%v", err)
	}
	a.board.set(func(b *Status) { b.Spool = a.spool.status() })
}

// storeSpooled stores s, which continues the log, and removes it from the spool.
func (a *archiver) storeSpooled(ctx context.Context, s catalog.Segment) error {
	e, err := a.spool.get(s.Header)
	if err == nil {
		err = a.storeOnce(ctx, e)
	}
	if err != nil { // %v hides the kind of err, which would end the agent: the next turn looks at the spool again
		return fmt.Errorf("store the spool: %v", err)
	}
	err = a.spool.remove(s)
	a.board.set(func(b *Status) {
		b.addEnd(s, time.Now())
		b.Lineage, b.Spool = s.Lineage, a.spool.status()
	})
	return err
}

// storeOnce tries once to store e in the repository.
func (a *archiver) storeOnce(ctx context.Context, e segment.Encoded) error {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	return a.to.Log().StoreSegment(ctx, e)
}

// isUnstorable reports whether the segment can never be stored: another object has its name, the stored segment before it is not the one
// that it continues, or it is damaged in the spool.
func isUnstorable(err error) bool {
	return errors.Is(err, catalog.ErrTaken) || errors.Is(err, catalog.ErrDamaged) || errors.Is(err, errDiscontinuous)
}
